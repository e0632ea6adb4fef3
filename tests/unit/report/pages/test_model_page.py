from __future__ import annotations

from exporter.records.record import Blame, CheckResult, Culprit, Record, Source, Status
from exporter.report.formats import MARKS, NOT_RUN
from exporter.report.pages.markdown import render_pages
from exporter.report.pages.model_page import build_model_page
from exporter.report.rows.cells import AcceptanceHistory, Row, collect_cells
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

OPSETS = (9, 10, 11, 18)


def page_of(*records: object, **fields: object) -> Row:
    spec = make_spec("dcgan", **{"opsets": OPSETS, **fields})
    cells = collect_cells(make_manifest(spec), make_run(*records))["dcgan"]
    return build_model_page(spec, cells, make_manifest(spec).project, AcceptanceHistory())


def record(opset: int, **fields: object) -> Record:
    """Return a green record; `fields` are those of its file."""
    return make_record(f"dcgan/{opset}/cpu", artifact=make_artifact("dcgan", opset, **fields))


def checks(**statuses: str) -> tuple[CheckResult, ...]:
    return tuple(
        CheckResult(check=check, status=Status(status)) for check, status in statuses.items()
    )


def test_the_matrix_shows_cells_without_results() -> None:
    page = page_of(make_record("dcgan/9/cpu"), devices=("cpu", "cuda"))
    assert page["opsets"] == OPSETS
    assert [row["device"] for row in page["matrix"]] == ["cpu", "cuda"]
    assert page["matrix"][0]["marks"] == (MARKS[Status.PASS], NOT_RUN, NOT_RUN, NOT_RUN)
    assert page["legend"] == (MARKS[Status.PASS], NOT_RUN)


def test_opsets_with_equal_results_are_one_row() -> None:
    page = page_of(
        make_record("dcgan/9/cpu", checks=checks(opset="pass", parity="pass")),
        make_record("dcgan/10/cpu", checks=checks(opset="pass", parity="pass")),
        make_record("dcgan/11/cpu", "fail", checks=checks(opset="pass", parity="fail")),
        make_record("dcgan/18/cpu", "error", checks=checks(opset="pass")),
    )
    (table,) = page["checks"]
    assert table["checks"] == ("opset", "parity")
    marks = [
        (row["opsets"], [result and result.mark.word for result in row["results"]])
        for row in table["rows"]
    ]
    assert marks == [
        ("9..10", ["pass", "pass"]),
        ("11", ["pass", "fail"]),
        ("18", ["pass", None]),
    ]


def test_figures_of_a_check_are_stable() -> None:
    measured = [
        CheckResult(
            check="parity",
            status=Status.PASS,
            metrics={"max_abs": error, "of_limit": share, "sqnr_db": error, "samples": 3},
        )
        for error, share in ((1.7e-4, 0.21), (2.3e-4, 0.29))
    ]
    first, other = (page_of(make_record("dcgan/9/cpu", checks=(item,))) for item in measured)
    assert first["checks"] == other["checks"]
    (result,) = first["checks"][0]["rows"][0]["results"]
    assert result is not None
    assert result.figures == ("error ≤ 1e-3", "≤ 50% of its limit", "samples 3")


def test_nodes_without_a_kernel_and_those_for_shapes_are_told_apart() -> None:
    metrics = {"nodes": 40, "elsewhere": 10, "shapes": 9, "copies": 2, "fallback": "CPU runs DFT 1"}
    free = {"nodes": 40, "elsewhere": 1, "shapes": 1, "copies": 0}
    results = [
        CheckResult(check="placement", status=Status.PASS, metrics=each) for each in (metrics, free)
    ]
    page = page_of(
        *(make_record(f"dcgan/{n}/cpu", checks=(r,)) for n, r in zip((9, 10), results, strict=True))
    )
    assert [row["results"][0].figures for row in page["checks"][0]["rows"]] == [
        ("elsewhere 10", "9 nodes for shapes", "2 copies", "fallback CPU runs DFT 1"),
        ("elsewhere 1", "1 node for shapes"),
    ]


def test_equal_outputs_have_no_share_of_a_limit() -> None:
    for error, share, shown in ((0.0, 0.0, "error 0"), (3.0, float("inf"), "error ≤ 10")):
        metrics = {"max_abs": error, "of_limit": share}
        item = CheckResult(check="parity", status=Status.FAIL, metrics=metrics)
        (result,) = page_of(make_record("dcgan/9/cpu", checks=(item,)))["checks"][0]["rows"][0][
            "results"
        ]
        assert result is not None
        assert result.figures == (shown,)


def test_red_failures_are_first_and_grouped() -> None:
    page = page_of(
        make_record("dcgan/9/cpu", "xfail", message="no Foo", foreseen="too old"),
        make_record("dcgan/10/cpu", "crash", message="died of SIGSEGV", log="dcgan/logs/10.log"),
        make_record("dcgan/11/cpu", "crash", message="died of SIGSEGV", log="dcgan/logs/11.log"),
        make_record("dcgan/18/cpu"),
    )
    red, foreseen = page["failures"]
    assert (red["label"], red["outcome"], red["reason"]) == (
        "dcgan/10..11/cpu",
        "crash at convert",
        "died of SIGSEGV",
    )
    assert (red["log"], red["export_command"]) == (
        "build/dcgan/logs/10.log",
        "exporter export 'dcgan/10/cpu'",
    )
    assert (foreseen["label"], foreseen["expected_reason"], foreseen["log"]) == (
        "dcgan/9/cpu",
        "too old",
        "",
    )


def test_a_failed_check_has_its_figures_and_the_detail_its_end() -> None:
    failed = CheckResult(
        check="parity", status=Status.FAIL, message="off", metrics={"max_abs": 0.0123456, "n": 2}
    )
    page = page_of(
        make_record(
            "dcgan/9/cpu",
            "fail",
            checks=(*checks(opset="pass"), failed),
            detail="\n".join(f"line {number}" for number in range(100)) + "\n",
        )
    )
    failure = page["failures"][0]
    assert [
        (item["check"], item["message"], item["figures"]) for item in failure["failed_checks"]
    ] == [("parity", "off", "max_abs 0.012, n 2")]
    assert failure["detail"].splitlines() == [f"line {number}" for number in range(80, 100)]


def test_every_cell_that_does_not_pass_is_a_failure() -> None:
    for status in Status:
        failures = page_of(make_record("dcgan/9/cpu", status), opsets=(9,))["failures"]
        assert len(failures) == (status is not Status.PASS)
    assert [failure["outcome"] for failure in page_of(opsets=(9,))["failures"]] == ["not run"]


def test_files_and_operators_by_ranges_of_opsets() -> None:
    page = page_of(
        record(9),
        record(10),
        record(11, operators={"Conv": 1, "Gelu": 2}, external_data=("weights-abc.data",)),
        make_record("dcgan/18/cpu", "error"),
    )
    assert [(row["opsets"], row["exporter"], row["size"]) for row in page["files"]] == [
        ("9..10", "torchscript (trace)", "1.23 kB"),
        ("11", "torchscript (trace)", "1.23 kB"),
    ]
    assert [row["external_data"] for row in page["files"]] == ["", "1"]
    assert page["operators"]["opsets"] == ("9..10", "11")
    assert [(row["operator"], row["counts"]) for row in page["operators"]["rows"]] == [
        ("Conv", (1, 1)),
        ("Gelu", (0, 2)),
        ("Relu", (1, 0)),
    ]


def test_the_releases_of_onnx_runtime_that_load_each_file() -> None:
    page = page_of(
        record(17, ir_version=8),
        record(18, ir_version=10),
        record(19, ir_version=10, opset_imports={"": 19, "own": 1}),
        record(20, ir_version=99, opset_imports={"": 29}),
        opsets=(17, 18, 19, 20),
    )
    assert [(row["opsets"], row["releases"]) for row in page["releases"]] == [
        ("17", "1.12 and later"),
        ("18", "1.18 and later, for IR version 10; ir_version = 8 is enough for 1.14"),
        (
            "19",
            "1.18 and later, for IR version 10; ir_version = 9 is enough for 1.15, "
            + "with kernels of own",
        ),
        ("20", "no known release"),
    ]


def test_initial_weights_are_part_of_the_contract() -> None:
    drawn = page_of(make_record("dcgan/9/cpu", notes=("weights: initial values of seed 3",)))
    assert (drawn["weights"], drawn["notes"]) == ("initial values of seed 3", ())
    assert page_of(make_record("dcgan/9/cpu"))["weights"] == ""


def test_the_hash_of_trained_weights_is_part_of_the_contract() -> None:
    files = ("manifests/vision.py", "manifests/weights/dcgan.pt")
    sources = tuple(Source(file=file, state=f"{index}" * 64) for index, file in enumerate(files))
    record = make_record("dcgan/9/cpu", sources=sources)
    page = page_of(record, weights="weights/dcgan.pt")
    assert [(each.file, each.state) for each in page["data"]] == [(files[1], "1" * 64)]
    spec = make_spec("dcgan", opsets=OPSETS, weights="weights/dcgan.pt")
    text = render_pages(make_manifest(spec), make_run(record))["models/dcgan.md"]
    assert f"| weights | `{files[1]}`, sha256 `{'1' * 64}` |" in text
    assert page_of(record)["data"] == ()


def test_equal_notes_are_one_row() -> None:
    page = page_of(
        make_record("dcgan/9/cpu", notes=("baked", "other")),
        make_record("dcgan/10/cpu", notes=("baked",)),
    )
    assert [(note["opsets"], note["text"]) for note in page["notes"]] == [
        ("9..10", "baked"),
        ("9", "other"),
    ]


def test_warnings_of_the_tracer_are_counted() -> None:
    text = "tracer warning: models/net.py:3: Converting a tensor to a Python boolean"
    page = page_of(
        make_record("dcgan/9/cpu", notes=(text, f"{text} (2 times)", "other")),
        make_record("dcgan/10/cpu", notes=(text,)),
    )
    assert page["tracer_warnings"] == 2
    assert page_of(make_record("dcgan/9/cpu", notes=("other",)))["tracer_warnings"] == 0


def test_a_pattern_is_quoted_for_the_shell() -> None:
    assert page_of()["export_command"] == "exporter export 'dcgan/*'"


def test_a_flaky_cell_is_listed_even_if_it_passes() -> None:
    text = "another verdict for the very same inputs: was error at convert"
    page = page_of(
        make_record("dcgan/9/cpu", flaky=text),
        make_record("dcgan/10/cpu", flaky=text),
        make_record("dcgan/11/cpu", "fail", flaky=text),
        make_record("dcgan/18/cpu"),
    )
    assert [(row["label"], row["mark"].word, row["previous"]) for row in page["flaky"]] == [
        ("dcgan/9..10/cpu", "pass", text),
        ("dcgan/11/cpu", "fail", text),
    ]
    (failure,) = page["failures"]
    assert failure["flaky"] == text
    assert page_of(make_record("dcgan/9/cpu"))["flaky"] == ()


def test_a_long_message_is_not_repeated() -> None:
    text = "[ONNXRuntimeError] : 1 : FAIL : Load model from net/9.onnx failed: Type Error"
    refused = CheckResult(check="load", status=Status.FAIL, message=text)
    blame = Blame(culprit=Culprit.RUNTIME, sample="declared", evidence=(f"cpu: wrong: {text}",))
    page = page_of(
        make_record("dcgan/9/cpu", "fail", message=text, checks=(refused,), blame=blame),
    )
    failure = page["failures"][0]
    assert failure["reason"] == text
    assert [item["message"] for item in failure["failed_checks"]] == ["as above"]
    assert failure["reasons"]["evidence"] == ("cpu: wrong: as above",)
