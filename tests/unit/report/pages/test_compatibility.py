from __future__ import annotations

import pytest

from exporter.manifest import Device, Manifest, RuntimeEnvironment
from exporter.records.record import Status
from exporter.report.formats import MARKS
from exporter.report.pages.compatibility import build_overview
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(
    make_spec("alexnet", opsets=(18, 17), devices=("cpu", "cuda")),
    make_spec("bert", opsets=(17, 19)),
)


def test_only_promised_cells_count() -> None:
    run = make_run(
        make_record("alexnet/17/cpu"),
        make_record("alexnet/18/cpu", "xfail", foreseen="because"),
        make_record("bert/17/cpu", "crash"),
        make_record("bert/20/cpu"),
        make_record("gone/17/cpu"),
    )
    page = build_overview(MANIFEST, run)
    assert (page["cells"], page["green"], page["models"]) == (6, 2, 2)
    text = "2 models, 1 red; 1 proved, 1 foreseen failure, 3 without a result"
    assert page["head"] == text
    assert (page["red"]["cells"], page["not_run"]["cells"], page["expected"]["cells"]) == (1, 3, 1)


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
    red = build_overview(make_manifest(spec), run)["red"]
    assert red["cells"] == 4
    assert [
        (row["affected"]["labels"], row["outcome"], row["reason"]) for row in red["clusters"]
    ] == [
        (("dcgan/9..10/cpu",), "error at convert", "no Foo at opset 9 (text of dcgan/9/cpu)"),
        (("dcgan/11/cpu",), "xpass", MARKS[Status.XPASS].meaning),
        (("dcgan/13/cpu",), "fail at parity", "off (expected a failure at load)"),
    ]


def test_only_red_statuses_are_listed_as_red() -> None:
    for status in Status:
        spec = make_spec(opsets=(18,))
        page = build_overview(make_manifest(spec), make_run(make_record("alexnet/18/cpu", status)))
        assert page["red"]["cells"] == status.is_red
        assert page["green"] == status.is_green


def test_cells_with_one_outcome_and_reason_share_a_row() -> None:
    cells = ("bert/17/cpu", "bert/19/cpu", "alexnet/17/cpu")
    reason = "needs opset 20 (https://example.org/a/b/c/1)"
    records = [make_record(cell, "xfail", foreseen=reason) for cell in cells]
    records.append(make_record("alexnet/18/cpu", "xfail", foreseen="another reason"))
    first, second = build_overview(MANIFEST, make_run(*records))["expected"]["rows"]
    labels = {row["reason"]: sorted(row["labels"]) for row in (first, second)}
    assert labels == {
        reason: ["alexnet/17/cpu", "bert/17,19"],
        "another reason": ["alexnet/18/cpu"],
    }


def test_exporters_by_opset() -> None:
    records = [make_record(f"bert/{opset}/cpu") for opset in (17, 19)]
    records += [make_record(f"alexnet/{opset}/cpu") for opset in (17, 18)]
    routes = build_overview(MANIFEST, make_run(*records))["routes"]
    assert [(row["exporter"], row["opsets"], row["models"]) for row in routes] == [
        ("dynamo", "18..19", "alexnet, bert"),
        ("torchscript", "17", "alexnet, bert"),
    ]
    many = [make_spec(f"m{index}", opsets=(18,)) for index in range(9)]
    run = make_run(*(make_record(f"m{index}/18/cpu") for index in range(9)))
    assert build_overview(make_manifest(*many), run)["routes"][0]["models"] == "9 models"


@pytest.mark.parametrize(
    ("failing", "labels"),
    [
        ("17/cpu 17/cuda 18/cpu 18/cuda 18/old 17/old", ("a/17..18",)),
        ("17/cpu 18/cpu", ("a/17..18/cpu",)),
        ("17/cpu 18/cpu 18/old", ("a/17/cpu", "a/18/cpu,old")),
        # The runtime of `old` loads no opset 21, so it contradicts nothing.
        ("18/cpu 18/cuda 18/old 21/cpu 21/cuda", ("a/18,21",)),
        ("18/cpu 18/old 21/cpu", ("a/18,21/cpu,old",)),
        ("18/cpu 18/cuda 21/cpu 21/cuda", ("a/18,21/cpu,cuda",)),
    ],
)
def test_devices_are_folded(failing: str, labels: tuple[str, ...]) -> None:
    spec = make_spec("a", opsets=(17, 18, 21), devices=("cpu", "cuda", "old"))
    environment = RuntimeEnvironment(name="old", requirements=("onnxruntime==1.17.*",))
    device = Device(name="old", runtime="onnxruntime", environment=environment)
    made = make_manifest(spec)
    project = made.project.model_copy(update={"devices": (*made.project.devices[:-1], device)})
    failed = [make_record(f"a/{cell}", "xfail", foreseen="x") for cell in failing.split()]
    page = build_overview(
        Manifest(project=project, models=(spec,)),
        make_run(make_record("a/21/old", "unavailable"), *failed),
    )
    assert page["expected"]["rows"][0]["labels"] == labels


def test_the_legend_has_only_the_marks_of_the_page() -> None:
    spec = make_spec(opsets=(17, 18))
    records = (make_record("alexnet/17/cpu"), make_record("alexnet/18/cpu", "fail"))
    page = build_overview(make_manifest(spec), make_run(*records))
    assert [mark.word for mark in page["legend"]] == ["pass", "fail"]
