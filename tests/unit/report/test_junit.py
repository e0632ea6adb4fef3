"""The report for CI systems has the content of the table if another program reads it."""

from __future__ import annotations

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from exporter.manifest import Manifest
from exporter.records.record import CheckResult, RunRecord, Status
from exporter.report.site import render_site_files
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

KINDS = {
    "pass": None,
    "xfail": Skipped,
    "xpass": Failure,
    "fail": Failure,
    "inconclusive": Failure,
    "error": Error,
    "crash": Error,
    "timeout": Error,
    "killed": Error,
    "unavailable": Skipped,
    "skip": Skipped,
}


def read(manifest: Manifest, run: RunRecord) -> JUnitXml:
    return JUnitXml.fromstring(render_site_files(manifest, run)["junit.xml"].encode())


def cases(result: JUnitXml) -> dict[str, TestCase]:
    suites = [suite for suite in result if isinstance(suite, TestSuite)]
    return {str(case.name): case for suite in suites for case in suite}


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_a_case_of_its_kind(status: Status) -> None:
    manifest = make_manifest(make_spec("net", opsets=(18,)))
    result = read(manifest, make_run(make_record("net/18/cpu", status, message="why it is so")))
    (case,) = cases(result).values()
    kind = KINDS[status]
    assert [type(result) for result in case.result] == ([kind] if kind else [])
    if kind:
        assert case.result[0].message == "why it is so"
        assert case.result[0].type.startswith(status.value)
    assert (case.classname, case.name) == ("net", "net/18/cpu")
    assert (result.tests, result.failures, result.errors, result.skipped) == (
        1,
        int(kind is Failure),
        int(kind is Error),
        int(kind is Skipped),
    )


def test_a_missing_result_is_no_pass() -> None:
    result = read(make_manifest(make_spec("net", opsets=(17, 18))), make_run())
    assert [type(case.result[0]) for case in cases(result).values()] == [Skipped, Skipped]
    assert (result.tests, result.skipped) == (2, 2)


def test_a_suite_for_each_model_and_its_counts() -> None:
    manifest = make_manifest(make_spec("a", opsets=(17, 18)), make_spec("b", opsets=(18,)))
    run = make_run(
        make_record("a/17/cpu"), make_record("a/18/cpu", "fail"), make_record("b/18/cpu")
    )
    suites = [suite for suite in read(manifest, run) if isinstance(suite, TestSuite)]
    assert [(suite.name, suite.tests, suite.failures) for suite in suites] == [
        ("a", 2, 1),
        ("b", 1, 0),
    ]


def test_a_failure_has_all_facts() -> None:
    refused = CheckResult(check="parity", status=Status.FAIL, message="off by 0.5")
    record = make_record(
        "net/18/cpu",
        "fail",
        message="output 'y' is off",
        detail="line one\n  line two",
        checks=(CheckResult(check="opset", status=Status.PASS, message="fine"), refused),
    )
    (case,) = cases(read(make_manifest(make_spec("net", opsets=(18,))), make_run(record))).values()
    assert case.result[0].text == (
        "output 'y' is off\nparity: fail: off by 0.5\ncode: E-worker\n"
        "promised at: manifests/vision.toml:1\n"
        "run again: exporter export 'net/18/cpu'\n"
        "reproduce: exporter repro net/18/cpu\nline one\n  line two"
    )


def test_a_foreseen_failure_is_skipped_for_its_reason() -> None:
    record = make_record("net/18/cpu", "xfail", message="no Foo", foreseen="came with opset 19")
    (case,) = cases(read(make_manifest(make_spec("net", opsets=(18,))), make_run(record))).values()
    assert case.result[0].message == "came with opset 19"


def test_the_file_does_not_depend_on_times() -> None:
    manifest = make_manifest(make_spec("net", opsets=(18,)))
    fields = {"message": "off", "log": "net/logs/18.log"}
    texts = {
        render_site_files(
            manifest,
            make_run(make_record("net/18/cpu", "fail", seconds={"parity": seconds}, **fields)),
        )["junit.xml"]
        for seconds in (1.0, 2.0)
    }
    assert len(texts) == 1
