"""The proposed expectations match exactly the failures of the results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Expectation, Manifest, load_project
from exporter.planning.plan import apply_expectations
from exporter.records.record import CheckResult, Record, Stage, Status
from exporter.tools.expectations import (
    ExpectationLists,
    format_list,
    format_opset_condition,
    propose_lists,
)
from tests.unit.factory import make_record

TODAY = date(2026, 11, 20)
HEAD = """format = 1

# all of vision
[models.a]  # the first
source = "net.py:Net"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = "9..13"
devices = ["cpu", "reference"]
"""
TAIL = """
[models.a.init]
width = 3

# the last one
[models.b]
extends = "a"
source = "net.py:Net"
"""


def project(root: Path, expect: str = "", tail: str = TAIL) -> Manifest:
    (root / "manifests").mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n")
    (root / "manifests/net.py").write_text("def Net(width=3): ...\n")
    (root / "manifests/m.toml").write_text(HEAD + expect + tail)
    return load_project(root)


def results(model: str = "a", **failing: str) -> list[Record]:
    """Return records: `cpu_9="no kernel 1"` fails with this message, all others pass."""
    records = []
    for opset in range(9, 14):
        for device in ("cpu", "reference"):
            message = failing.get(f"{device}_{opset}", "")
            cell = f"{model}/{opset}/{device}"
            records.append(
                make_record(cell, Status.ERROR, stage=Stage.CONVERT, message=message)
                if message
                else make_record(cell)
            )
    return records


def paste(text: str, lists: ExpectationLists) -> str:
    """Return the manifest with the printed lists in place of the present ones."""
    for id, (spec, entries) in lists.items():
        before, header, entry = text.partition(f"[models.{id}]")
        own, *rest = re.split(r"(?=\n+(?:# .*\n)?\[models)", entry, maxsplit=1)
        own = re.sub(r"\nexpect = \[(.*\]|(?s:.*?)\n\])(?=\n|$)", "", own)
        text = f"{before}{header}{own}\n{format_list(spec, entries)}\n{''.join(rest)}"
    return text


def patched(manifest: Manifest, records: Sequence[Record], reason: str = "known") -> str:
    """Paste the lists, test that it matches the results, and return the new text."""
    path = Path(manifest.project.root) / "manifests/m.toml"
    text = path.read_text()
    lists = propose_lists(manifest, records, TODAY, reason, [text])
    path.write_text(paste(text, lists))
    after = load_project(Path(manifest.project.root))
    for record in records:
        judged = apply_expectations(after.find_model(record.cell.model), record, TODAY)
        raw = record.status
        assert judged.status == (raw if raw in (Status.PASS, Status.SKIP) else Status.XFAIL)
    again = propose_lists(after, records, TODAY, reason, [path.read_text()])
    assert not again, "the lists need another change"
    return path.read_text()


def added(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


def removed(before: str, after: str) -> list[str]:
    return added(after, before)


def test_failures_are_folded_over_opsets_and_devices(tmp_path: Path) -> None:
    both = {f"{device}_{o}": "no kernel 1" for device in ("cpu", "reference") for o in (9, 10)}
    manifest = project(tmp_path)
    failing = {**both, "cpu_12": "no kernel for op 12"}
    text = patched(manifest, [*results(**failing), *results("b", **failing)])
    assert added(HEAD + TAIL, text) == [
        "expect = [",
        '  { opset = "9..10", stage = "convert", match = "no kernel", reason = "known" },',
        (
            '  { opset = 12, device = "cpu", stage = "convert", match = "no kernel for op", '
            'reason = "known" },'
        ),
        "]",
    ]
    assert not removed(HEAD + TAIL, text)


def test_a_child_does_not_inherit_the_new_list_of_its_parent(tmp_path: Path) -> None:
    records = [*results("a", cpu_9="no kernel"), *results("b")]
    patched(project(tmp_path), records)
    assert load_project(tmp_path).find_model("b").expect == ()


EXPECT = """expect = [
  { opset = "9..11", stage = "convert", match = "no kernel", reason = "one" },
  { opset = 13, stage = "convert", match = "other", reason = "two" },
]
"""


def test_expectations_that_pass_are_narrowed_or_removed(tmp_path: Path) -> None:
    failing = {f"{device}_{o}": "no kernel" for device in ("cpu", "reference") for o in (9, 10)}
    before = HEAD + EXPECT + TAIL
    records = [*results(**failing), *results("b", **failing)]
    text = patched(project(tmp_path, EXPECT), records)
    assert removed(before, text) == EXPECT.splitlines()[1:3]
    assert added(before, text) == [
        '  { opset = "9..10", stage = "convert", match = "no kernel", reason = "one" },'
    ]


def test_devices_with_different_opsets_get_an_entry_each(tmp_path: Path) -> None:
    records = results(cpu_9="no kernel", cpu_10="no kernel", reference_11="no kernel")
    text = patched(project(tmp_path, EXPECT.replace("13", "[12, 13]")), records)
    assert '{ opset = "9..10", device = "cpu", stage = "convert", match = "no kernel"' in text
    assert 'device = "reference"' in text


@pytest.mark.parametrize("message", ["no way 7", "no kernel"])
def test_another_message_replaces_the_entry(message: str, tmp_path: Path) -> None:
    expect = 'expect = [{ opset = 9, device = "cpu", match = "no way", reason = "old" }]\n'
    records = [*results(cpu_9=message), *results("b", cpu_9=message)]
    text = patched(project(tmp_path, expect), records, reason="new")
    assert ("old" in text) is (message == "no way 7")
    assert ('match = "no kernel"' in text) is (message == "no kernel")


def test_the_list_is_removed_if_all_pass(tmp_path: Path) -> None:
    text = patched(project(tmp_path, EXPECT), [*results(), *results("b")])
    assert "kernel" not in text
    assert load_project(tmp_path).find_model("a").expect == ()


def test_cells_without_a_result_keep_their_expectations(tmp_path: Path) -> None:
    manifest = project(tmp_path, EXPECT)
    assert not propose_lists(manifest, [], TODAY, "", [])
    skipped = [make_record(f"a/9/{device}", Status.SKIP) for device in ("cpu", "reference")]
    assert not propose_lists(manifest, skipped, TODAY, "", [])


def test_an_expired_expectation_is_replaced_with_a_reason(tmp_path: Path) -> None:
    ended = 'opset = 9, device = "cpu", match = "no", reason = "old", until = "2026-11-19"'
    manifest = project(tmp_path, f"expect = [{{ {ended} }}]\n")
    records = results(cpu_9="no kernel")
    text = (tmp_path / "manifests/m.toml").read_text()
    lists = propose_lists(manifest, records, TODAY, "", [text])
    (tmp_path / "manifests/m.toml").write_text(paste(text, lists))
    with pytest.raises(ExporterError, match="reason"):
        load_project(tmp_path)


@pytest.mark.parametrize("status", [Status.CRASH, Status.TIMEOUT, Status.KILLED])
def test_a_dead_worker_is_expected_by_its_signal(status: Status, tmp_path: Path) -> None:
    message = "the worker was terminated by SIGSEGV while at convert"
    records = [make_record("a/9/cpu", status, stage=Stage.CONVERT, message=message)]
    assert 'match = "the worker was terminated by SIGSEGV while at convert"' in patched(
        project(tmp_path), records
    )


def test_a_check_is_pinned_by_its_name(tmp_path: Path) -> None:
    message = "output 'y': error 1.23e-02 at [0, 1] (file 5, PyTorch 4), 3 times the bound"
    record = make_record("a/9/cpu", Status.FAIL, check="axes", message=message)
    text = patched(project(tmp_path), [record])
    assert """stage = "parity", check = "axes", match = "output 'y': error", """ in text


def fail_checks(cell: str, **messages: str) -> Record:
    checks = tuple(
        CheckResult(check=name, status=Status.FAIL, message=text) for name, text in messages.items()
    )
    check, message = next(iter(messages.items()))
    return make_record(cell, Status.FAIL, check=check, message=message, checks=checks)


def test_all_failing_checks_are_proposed(tmp_path: Path) -> None:
    wrong = "output 'y': error 1.23e-02 at [0, 1] (file 5, PyTorch 4)"
    records = [
        fail_checks("a/9/cpu", parity=wrong, axes=f"batch=7: {wrong}", tables="row 7 differs"),
        fail_checks("a/10/cpu", parity=wrong, axes=f"batch=5: {wrong}"),
    ]
    text = patched(project(tmp_path), records)
    lines = [line for line in added(HEAD + TAIL, text) if line.startswith("  {")]
    assert lines == [
        (
            '  { opset = "9..10", device = "cpu", stage = "parity", check = ["parity", "axes"], '
            """match = "output 'y': error", reason = "known" },"""
        ),
        (
            '  { opset = 9, device = "cpu", stage = "parity", check = "tables", '
            'match = "differs", reason = "known" },'
        ),
    ]


def test_only_the_unforeseen_checks_are_added(tmp_path: Path) -> None:
    expect = 'expect = [{ opset = 9, device = "cpu", check = "parity", reason = "old" }]\n'
    failed = fail_checks("a/9/cpu", parity="output 'y': error 1.2", axes="NaN or Inf differ")
    text = patched(project(tmp_path, expect), [failed, *results("b", cpu_9="no kernel")])
    assert 'check = "parity", reason = "old"' in text
    assert 'stage = "parity", check = "axes", match = "NaN or Inf differ"' in text


@pytest.mark.parametrize(
    ("opsets", "text"),
    [
        ((9,), 9),
        ((9, 11), "9..11"),
        ((9, 11, 17), "9..17"),
        ((9, 17), [9, 17]),
        ((9, 11, 18), ["9..11", 18]),
    ],
)
def test_a_range_includes_only_other_opsets_that_the_model_lacks(
    opsets: tuple[int, ...], text: object
) -> None:
    assert format_opset_condition(opsets, (9, 11, 17, 18)) == text


def test_judged_records_give_the_same_as_raw_ones(tmp_path: Path) -> None:
    manifest = project(tmp_path, EXPECT)
    records = results(cpu_9="no kernel", cpu_12="else at all")
    spec = manifest.find_model("a")
    judged = [apply_expectations(spec, record, TODAY) for record in records]
    assert {Status.XFAIL, Status.XPASS} <= {record.status for record in judged}
    of_raw = propose_lists(manifest, records, TODAY, "known", [])
    assert propose_lists(manifest, judged, TODAY, "known", []) == of_raw
    assert any(isinstance(entry.expectation, Expectation) for entry in of_raw["a"][1])


def test_an_expectation_for_another_torch_is_kept(tmp_path: Path) -> None:
    expect = 'expect = [{ opset = 9, torch = ">=2.14", reason = "later" }]\n'
    manifest = project(tmp_path, expect, tail="")
    records = [
        each.model_copy(update={"fingerprint": {"tool.torch": "2.13.0"}}) for each in results()
    ]
    assert not propose_lists(manifest, records, TODAY, "known", [HEAD + expect])


def test_a_narrowed_expectation_keeps_its_versions(tmp_path: Path) -> None:
    expect = 'expect = [{ opset = "<11", torch = "<2.14", reason = "old" }]\n'
    manifest = project(tmp_path, expect, tail="")
    records = [
        each.model_copy(update={"fingerprint": {"tool.torch": "2.13.0"}})
        for each in results(cpu_9="no kernel", reference_9="no kernel")
    ]
    text = patched(manifest, records)
    assert 'torch = "<2.14"' in text
    assert load_project(tmp_path).find_model("a").expect[0].opsets == (9,)


def test_a_range_of_versions_is_checked(tmp_path: Path) -> None:
    expect = 'expect = [{ torch = "2.14", reason = "later" }]\n'
    with pytest.raises(ExporterError, match=r"expect.*torch: .*comparisons of versions such as"):
        project(tmp_path, expect, tail="")


def test_toolchains_with_different_results_get_an_entry_each(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/net.py").write_text("def Net(width=3): ...\n")
    devices = '["cpu", "reference", "cpu@old", "reference@old"]'
    text = HEAD.replace('["cpu", "reference"]', devices)
    (tmp_path / "manifests/m.toml").write_text(text)
    table = '[tool.exporter.toolchains.old]\nrequirements = ["onnxscript==0.6.2"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    failing = ("9/cpu@old", "9/reference@old", "10/cpu")
    records = [
        make_record(f"a/{cell}", Status.ERROR, stage=Stage.CONVERT, message="no kernel for it")
        for cell in failing
    ]
    manifest = load_project(tmp_path)
    after = patched(manifest, records)
    lines = (line.strip() for line in after.splitlines())
    conditions = [line.split(", stage")[0] for line in lines if ", stage" in line]
    assert sorted(conditions) == [
        '{ opset = 10, device = "cpu", toolchain = "current"',
        '{ opset = 9, toolchain = "old"',
    ]
    (tmp_path / "manifests/m.toml").write_text(after)
    statuses = {
        apply_expectations(load_project(tmp_path).find_model("a"), record, date(2026, 1, 1)).status
        for record in records
    }
    assert statuses == {Status.XFAIL}
