from __future__ import annotations

import pytest

from exporter.records.record import Status
from exporter.report.pages.overview import build_overview
from exporter.report.text.status_marks import MARKS, NOT_RUN
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(
    make_spec("alexnet", opsets=(18, 17), devices=("cpu", "cuda")),
    make_spec("bert", opsets=(17, 19)),
)


def test_a_row_for_each_group_of_devices_with_every_promised_opset() -> None:
    run = make_run(
        make_record("alexnet/17/cpu"),
        make_record("alexnet/18/cuda", "unavailable"),
        make_record("bert/19/cpu", "fail"),
    )
    (part,) = build_overview(MANIFEST, run).matrix.parts
    done, red = MARKS[Status.PASS], MARKS[Status.FAIL]
    assert part.opsets == (17, 18, 19)
    assert [(row.model, row.devices, row.marks) for row in part.rows] == [
        ("bert", ("cpu",), (NOT_RUN, None, red)),
        ("alexnet", ("cpu",), (done, NOT_RUN, None)),
        ("alexnet", ("cuda",), (NOT_RUN, MARKS[Status.UNAVAILABLE], None)),
    ]


def test_only_promised_cells_count() -> None:
    run = make_run(
        make_record("alexnet/17/cpu"),
        make_record("alexnet/18/cpu", "xfail", foreseen="because"),
        make_record("bert/17/cpu", "crash"),
        make_record("bert/20/cpu"),
        make_record("gone/17/cpu"),
    )
    page = build_overview(MANIFEST, run)
    assert (page.cells, page.green, page.models) == (6, 2, 2)
    assert [(count.mark.word, count.cells) for count in page.counts] == [
        ("pass", 1),
        ("xfail", 1),
        ("crash", 1),
        ("not run", 3),
    ]
    assert (page.red.cells, page.not_run.cells, page.expected.cells) == (1, 3, 1)


def test_red_cells_have_reasons() -> None:
    spec = make_spec("dcgan", opsets=(9, 10, 11, 13))
    run = make_run(
        make_record("dcgan/9/cpu", "error", message="no Foo at opset 9"),
        make_record("dcgan/10/cpu", "error", message="no Foo at opset 10"),
        make_record("dcgan/11/cpu", "xpass", message=""),
        make_record(
            "dcgan/13/cpu", "fail", message="off", expectation="expected a failure at load"
        ),
    )
    red = build_overview(make_manifest(spec), run).red
    assert red.cells == 4
    assert [(row.affected.labels, row.outcome, row.reason) for row in red.clusters] == [
        (("dcgan/9..10/cpu",), "error at convert", "no Foo at opset 9 (text of dcgan/9/cpu)"),
        (("dcgan/11/cpu",), "xpass", MARKS[Status.XPASS].meaning),
        (("dcgan/13/cpu",), "fail at parity", "off (expected a failure at load)"),
    ]


def test_only_red_statuses_are_listed_as_red() -> None:
    for status in Status:
        spec = make_spec(opsets=(18,))
        page = build_overview(make_manifest(spec), make_run(make_record("alexnet/18/cpu", status)))
        assert page.red.cells == status.is_red
        assert page.green == status.is_green


def test_a_foreseen_failure_shows_its_full_reason() -> None:
    reason = "needs opset 14 (https://example.org/a/b/c/1)"
    run = make_run(make_record("bert/17/cpu", "xfail", message="no Foo", foreseen=reason))
    (row,) = build_overview(MANIFEST, run).expected.rows
    assert row.reason == reason


def test_cells_with_one_outcome_and_reason_share_a_row() -> None:
    cells = ("bert/17/cpu", "bert/19/cpu", "alexnet/17/cpu")
    records = [make_record(cell, "xfail", foreseen="no kernel") for cell in cells]
    records.append(make_record("alexnet/18/cpu", "xfail", foreseen="another reason"))
    first, second = build_overview(MANIFEST, make_run(*records)).expected.rows
    labels = {row.reason: sorted(row.affected.labels) for row in (first, second)}
    assert labels == {
        "no kernel": ["alexnet/17/cpu", "bert/17,19/cpu"],
        "another reason": ["alexnet/18/cpu"],
    }


def test_exporters_by_opset() -> None:
    records = [make_record(f"bert/{opset}/cpu") for opset in (17, 19)]
    records += [make_record(f"alexnet/{opset}/cpu") for opset in (17, 18)]
    routes = build_overview(MANIFEST, make_run(*records)).routes
    assert [(row.exporter, row.opsets, row.models) for row in routes] == [
        ("dynamo", "18..19", "alexnet, bert"),
        ("torchscript", "17", "alexnet, bert"),
    ]
    many = [make_spec(f"m{index}", opsets=(18,)) for index in range(9)]
    run = make_run(*(make_record(f"m{index}/18/cpu") for index in range(9)))
    assert build_overview(make_manifest(*many), run).routes[0].models == "9 models"


@pytest.mark.parametrize(
    ("statuses", "lowest"),
    [
        ("pass pass pass", "17"),
        ("fail pass pass", "18"),
        ("pass fail pass", "19"),
        ("xfail xpass pass", "18"),
        ("skip skip pass", "19"),
        ("pass pass fail", ""),
        ("pass pass xfail", ""),
        ("pass pass", ""),
    ],
)
def test_the_lowest_opset_from_which_on_all_pass(statuses: str, lowest: str) -> None:
    records = [
        make_record(f"alexnet/{opset}/cpu", status)
        for opset, status in zip((17, 18, 19), statuses.split(), strict=False)
    ]
    page = build_overview(make_manifest(make_spec(opsets=(17, 18, 19))), make_run(*records))
    assert page.matrix.parts[0].rows[0].lowest_opset == lowest


def test_the_legend_has_only_the_marks_of_the_page() -> None:
    spec = make_spec(opsets=(17, 18))
    records = (make_record("alexnet/17/cpu"), make_record("alexnet/18/cpu", "fail"))
    page = build_overview(make_manifest(spec), make_run(*records))
    assert [mark.word for mark in page.legend] == ["pass", "fail"]
    assert not page.matrix.has_gaps
    assert build_overview(
        make_manifest(spec, make_spec("b", opsets=(19,))), make_run()
    ).matrix.has_gaps


def test_flaky_cells_are_listed() -> None:
    record = make_record("alexnet/18/cpu", flaky="was error")
    (row,) = build_overview(make_manifest(make_spec(opsets=(18,))), make_run(record)).flaky
    assert (row.label, row.mark.word, row.previous) == ("alexnet/18/cpu", "pass", "was error")
