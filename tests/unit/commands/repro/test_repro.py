"""A reproducer shows the failure of a cell without this tool."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.commands.repro.repro import (
    ReproducedCell,
    write_anonymous_reproducer,
    write_reproducer,
)
from exporter.commands.repro.repro_script import (
    format_call,
    format_flat_argument,
    format_hints,
    format_options,
    render_readme,
    render_repro_script,
    split_reference,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import (
    Axis,
    Comparator,
    Constant,
    Container,
    Device,
    Input,
    InputsFrom,
    ModelSpec,
    Output,
)
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.records.record import (
    Blame,
    Culprit,
    MissingOperator,
    OutputLimit,
    Record,
    Route,
    Source,
    Stage,
)
from tests.unit.factory import make_record, make_spec
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

SOURCE = Source(file="manifests/models.py", state="0" * 64)


def cell(root: Path, record: Record) -> ReproducedCell:
    built = JobFolder(root / "build/alexnet")
    built.sample(0).mkdir(parents=True, exist_ok=True)
    (built.sample(0) / "input_0.pb").write_bytes(b"tensor")
    (built.sample(0) / "output_0.pb").write_bytes(b"tensor")
    sample = Sample(index=0, name="declared", kind="declared", axes={"batch": 3})
    reference = Reference(samples=(sample,), noise=(1e-7,), output_spread=(0.5,))
    built.reference.write_text(reference.to_json())
    (root / "manifests").mkdir(exist_ok=True)
    (root / "manifests/models.py").write_text("# the model\n")
    return ReproducedCell(
        spec=make_spec(),
        record=record,
        device=Device(name="cpu", runtime="onnxruntime"),
        tools={},
        root=root,
        built=built,
    )


@pytest.mark.parametrize("kind", [Path.mkdir, os.mkfifo])
def test_a_sample_that_is_no_file_is_an_error_with_its_path(tmp_path: Path, kind: Any) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    path = failed_cell.built.sample(0) / "input_0.pb"
    path.unlink()
    kind(path)
    text = f"{path}: cannot be read: is not a regular file; export the model again"
    with pytest.raises(ExporterError, match=re.escape(text)):
        write_reproducer(failed_cell, tmp_path / "again")


def test_sources_and_tensors_are_copied_and_an_earlier_one_is_replaced(tmp_path: Path) -> None:
    listing = Source(file="manifests/*.py", state="1" * 64)
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE, listing)))
    folder = tmp_path / "out"
    for _ in range(2):
        write_reproducer(failed_cell, folder)
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
        assert files == {
            "repro.py",
            "README.md",
            "declared/input_0.pb",
            "showing/input_0.pb",
            "source/manifests/models.py",
            ".written",
        }
        (folder / "source/__pycache__").mkdir()  # of a run of the script
        (folder / "source/__pycache__/models.pyc").write_text("")


def test_comparators_and_the_files_around_a_pass_are_copied(tmp_path: Path) -> None:
    blame = Blame(culprit=Culprit.PASS, sample="declared", evidence=())
    record = make_record(
        "alexnet/17/cpu", "fail", blame=blame, broken_pass=2, check="parity", sources=(SOURCE,)
    )
    failed_cell = cell(tmp_path, record)
    output = Output(name="y", shape=("batch",), compare=Comparator(sqnr=40.0))
    failed_cell = replace(failed_cell, spec=make_spec(outputs=(output,)))
    folder = tmp_path / "out"
    with pytest.raises(ExporterError, match=r"passes/17/1: is missing; export the model again"):
        write_reproducer(failed_cell, folder)
    for number in (1, 2):
        path = failed_cell.built.passes(17) / str(number) / "17.onnx"
        path.parent.mkdir(parents=True)
        path.write_text(f"file {number}")
    write_reproducer(failed_cell, folder)
    assert (folder / "passes/before/17.onnx").read_text() == "file 1"
    assert (folder / "passes/after/17.onnx").read_text() == "file 2"
    ast.parse((folder / "repro.py").read_text())
    assert "def compare_sqnr" in (folder / "comparators.py").read_text()
    write_reproducer(failed_cell, folder)  # in place of the earlier one
    with pytest.raises(ExporterError, match="the files around a pass contain the weights"):
        write_anonymous_reproducer(failed_cell, folder, {}, hashes_names=False)


@pytest.mark.parametrize("is_reproducer", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "repro.py", "README.md", "source/data.csv"])
def test_files_of_the_user_are_not_removed(name: str, is_reproducer: bool, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    if is_reproducer:
        write_reproducer(failed_cell, folder)
    (folder / "source").mkdir(parents=True, exist_ok=True)
    (folder / "repro.py").touch()
    (folder / name).write_text("mine")
    with pytest.raises(ExporterError, match="is not as `exporter repro` wrote it") as caught:
        write_reproducer(failed_cell, folder)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("file", ["../outside.py", "/etc/outside.py", "a/../../outside.py"])
def test_a_record_cannot_name_files_outside(file: str, tmp_path: Path) -> None:
    source = Source(file=file, state="0" * 64)
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(source,)))
    with pytest.raises(ExporterError, match="is outside the project"):
        write_reproducer(failed_cell, tmp_path / "out")


def test_a_failure_before_the_export_has_no_reproducer(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "error", stage=Stage.SOURCE))
    with pytest.raises(ExporterError, match="fails before the export"):
        write_reproducer(failed_cell, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_call_of_inputs_from_is_read_from_the_build_folder(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    spec = failed_cell.spec.model_copy(
        update={"inputs_from": InputsFrom(function="models.py:make")}
    )
    failed_cell = replace(failed_cell, spec=spec)
    with pytest.raises(ExporterError, match="export the model again"):
        write_reproducer(failed_cell, tmp_path / "out")
    inputs = tuple(
        item.model_copy(update={"at": f"kwargs.given{index}"})
        for index, item in enumerate(spec.inputs)
    )
    failed_cell.built.contract.write_text(spec.model_copy(update={"inputs": inputs}).to_json())
    write_reproducer(failed_cell, tmp_path / "out")
    assert "'given0': inputs[" in (tmp_path / "out" / "repro.py").read_text()


def test_a_class_that_a_script_cannot_import_is_an_error(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    containers = (Container(at="args[7]", type="my-models/x.py:Cache"),)
    failed_cell = replace(
        failed_cell, spec=failed_cell.spec.model_copy(update={"containers": containers})
    )
    with pytest.raises(ExporterError, match="a script cannot import my-models"):
        write_reproducer(failed_cell, tmp_path / "out")


def test_a_plugin_runtime_has_no_reproducer(tmp_path: Path) -> None:
    device = Device.model_construct(name="npu", runtime="vendor")
    plugin = replace(cell(tmp_path, make_record("alexnet/17/cpu", "fail")), device=device)
    with pytest.raises(ExporterError, match="the runtime 'vendor'"):
        write_reproducer(plugin, tmp_path / "repro")


DECLARED = Sample(index=0, name="declared", kind="declared", axes={"batch": 3})
REFERENCE = Reference(samples=(DECLARED,), noise=(1e-7,), output_spread=(0.5,))
CPU = Device(name="cpu", runtime="onnxruntime")
DYNAMO = Route(exporter="dynamo", capture="export", reason="")
TORCHSCRIPT = Route(exporter="torchscript", capture="trace", reason="")


def read_constants(script: str) -> dict[str, Any]:
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and not isinstance(node.value, ast.Attribute)
    }


def render(spec: ModelSpec, record: Record, device: Device = CPU) -> str:
    return render_repro_script(spec, record, device, DECLARED, REFERENCE)


@pytest.mark.parametrize("cell", ["alexnet/17/cpu", "alexnet/18/cpu"])
def test_any_text_stays_a_literal(cell: str) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    spec = make_spec(
        init={f"name_{n}": text for n, text in enumerate(texts)},
        options={"custom_opsets": dict.fromkeys(texts, 1)},
        constants=tuple(Constant(at=f"kwargs.w{n}", value=text) for n, text in enumerate(texts)),
        inputs=tuple(
            Input(name=text, shape=("batch", 3), at=f"args[{n}]") for n, text in enumerate(texts)
        ),
        outputs=tuple(Output(name=text, shape=("batch", 3)) for text in texts),
    )
    script = render(spec, make_record(cell, "fail", message="\n".join(texts)))
    constants = read_constants(script)
    assert constants["INPUTS"] == texts
    assert constants["OUTPUTS"] == texts
    names = {node.id for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Name)}
    assert not names & {"alert", "evil", "script"}


@pytest.mark.parametrize("text", HOSTILE)
def test_the_readme_has_no_forged_structure(text: str, tmp_path: Path) -> None:
    harmless = text.encode("utf-8", "replace").decode()

    def shape(word: str) -> tuple[list[str], list[str]]:
        record = make_record("alexnet/17/cpu", "fail", message=word, detail=word)
        page = Page.of(render_readme(make_spec(), record, {"torch": word}, DECLARED, tmp_path))
        return page.headings, page.links + page.html

    assert shape(harmless) == shape("word")


def test_the_call_is_the_call_of_the_worker() -> None:
    spec = make_spec(
        inputs=(
            Input(name="mask", shape=("batch",), at="kwargs.mask"),
            Input(name="x", shape=("batch", 3), at="args[0]"),
            Input(name="b", shape=("rows", 4), at="args[1][1]"),
            Input(name="a", shape=(4,), at="args[1][0]"),
        ),
        constants=(Constant(at="kwargs.cache", value=False),),
        axes=(Axis(name="batch", example=3), Axis(name="rows", example=4, min=2, max=9)),
    )
    call, hints = format_call(spec), format_hints(spec)
    x, a, b = (f"inputs['{name}'].clone()" for name in "xab")
    assert call.args == f"({x}, ({a}, {b}))"
    assert call.kwargs == "{'mask': inputs['mask'].clone(), 'cache': False}"
    assert call.names == ("x", "a", "b", "mask")
    assert hints.args == "({0: Dim.DYNAMIC}, ({}, {0: Dim.DYNAMIC(min=2, max=9)}))"
    assert hints.kwargs == "{'mask': {0: Dim.DYNAMIC}, 'cache': None}"


def test_an_axis_of_multiples_is_a_product() -> None:
    spec = make_spec(
        inputs=(Input(name="x", shape=("batch", "width"), at="args[0]"),),
        axes=(
            Axis(name="batch", example=3),
            Axis(name="width", example=24, min=8, max=100, multiple_of=8),
        ),
    )
    expected = "({0: Dim.DYNAMIC, 1: 8 * Dim('_factor1', min=1, max=12)},)"
    assert format_hints(spec).args == expected


def test_objects_numbers_and_optional_inputs_are_written_as_calls() -> None:
    spec = make_spec(
        inputs=(
            Input(name="n", shape=(), dtype="int64", at="args[0]", scalar=True),
            Input(name="m", shape=(3,), at="kwargs.m", optional=True),
            Input(name="k", shape=("batch",), at="kwargs.past[0].key"),
            Input(name="a", shape=(3,), at="kwargs.pair[0]"),
        ),
        constants=(Constant(at="kwargs.past[0].size", value=None),),
        containers=(
            Container(at="kwargs.past", type="list"),
            Container(at="kwargs.past[0]", type="models/x.py:Layer"),
            Container(at="kwargs.pair", type="package.x:Pair"),
            Container(at="args[1]", type="dict"),
        ),
        axes=(Axis(name="batch", example=3),),
    )
    call, hints = format_call(spec), format_hints(spec)
    assert call.args == "(as_number(inputs['n']), {})"
    assert call.kwargs == (
        "{'m': (None if 'm' not in inputs else inputs['m'].clone()), "
        "'past': [getattr(importlib.import_module('models.x'), 'Layer')"
        "(**{'key': inputs['k'].clone(), 'size': None})], "
        "'pair': getattr(importlib.import_module('package.x'), 'Pair')(inputs['a'].clone())}"
    )
    assert hints.args == "(Dim.DYNAMIC, {})"
    assert hints.kwargs == (
        "{'m': {}, 'past': [{'key': {0: Dim.DYNAMIC}, 'size': None}], 'pair': ({},)}"
    )
    flat = [format_flat_argument(item, by_dynamo=True) for item in spec.inputs[:2]]
    assert flat == ["as_number(inputs['n'])", "inputs['m'].clone()"]


def test_a_file_whose_path_is_no_module_cannot_be_imported() -> None:
    assert split_reference("models/x.py:Layer") == ("models.x", "Layer")
    assert split_reference("package.x:Layer") == ("package.x", "Layer")
    assert split_reference("my-models/x.py:Layer") == ("", "Layer")


def test_each_exporter_gets_its_own_options() -> None:
    options = {"optimize": False, "do_constant_folding": True, "external_data": False}
    spec = make_spec(options=options, mode="train")
    assert format_options(spec, DYNAMO) == {"verbose": "False", "optimize": "False"}
    assert format_options(spec, TORCHSCRIPT) == {
        "training": "torch.onnx.TrainingMode.TRAINING",
        "do_constant_folding": "True",
    }


def test_the_script_exports_in_the_state_of_the_cell() -> None:
    options = {"route": DYNAMO.model_copy(update={"optimize": False})}
    script = render(make_spec(), make_record("alexnet/18/cpu", "fail", **options))
    assert "@torch.no_grad()\ndef export(" in script
    assert "set_fastpath_enabled(False)" in script
    assert "optimize=False," in script
    plain = DYNAMO.model_copy(update={"state": "plain"})
    record = make_record("alexnet/18/cpu", "fail", route=plain)
    script = render(make_spec(export_state="plain"), record)
    assert "@torch.enable_grad()\ndef export(" in script
    assert "set_fastpath_enabled" not in script
    assert "optimize=False," not in script


def test_the_limit_of_the_check_is_used_if_the_record_has_it() -> None:
    blame = Blame(
        culprit=Culprit.EXPORTER,
        sample="declared",
        evidence=(),
        allowed=(OutputLimit(atol=0.5, rtol=0.0, exact=True), OutputLimit()),
    )
    known = render(make_spec(), make_record("alexnet/17/cpu", "fail", blame=blame))
    assert read_constants(known)["LIMITS"] == [
        {"atol": 0.5, "rtol": 0.0, "exact": True, "scale": None},
        {"atol": 0.0, "rtol": 0.0, "exact": False, "scale": None},
    ]
    unknown = render(make_spec(), make_record("alexnet/17/cpu"))
    (limit,) = read_constants(unknown)["LIMITS"]
    assert limit["noises"] == pytest.approx(1.6e-6)


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("models/vision.py:AlexNet", "importlib.import_module('models.vision')"),
        ("torchvision.models:alexnet", "importlib.import_module('torchvision.models')"),
        ("my-models/a.py:A", "HERE / 'source/manifests/my-models/a.py'"),
    ],
)
def test_the_model_is_imported_from_its_module_or_file(source: str, imported: str) -> None:
    script = render(make_spec(source=source), make_record("alexnet/17/cpu"))
    assert imported in script
    ast.parse(script)


def test_the_entry_ends_before_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/vision.toml").write_text(
        "format = 1\n\n[models.alexnet]\nopsets = 17\n\n[models.alexnet.axes]\nbatch.min = 2\n\n"
        "[[models.alexnet.overrides]]\nopset = 9\n\n[models.alexnet-large]\nopsets = 18\n"
    )
    record = make_record("alexnet/17/cpu", "fail")
    readme = render_readme(make_spec(line=3), record, {"torch": "2.13.0"}, DECLARED, tmp_path)
    assert "batch.min = 2" in readme
    assert "opset = 9" in readme
    assert "alexnet-large" not in readme
    assert ["torch", "2.13.0"] in Page.of(readme).rows


def test_the_readme_lists_each_missing_operator(tmp_path: Path) -> None:
    missing = [MissingOperator(operator=f"aten::{name}", count=2) for name in ("airy", "bessel")]
    record = make_record("alexnet/17/cpu", "error", missing=tuple(missing))
    readme = render_readme(make_spec(), record, {}, DECLARED, tmp_path)
    assert [row[:2] for row in Page.of(readme).rows if "aten" in row[0]] == [
        ["aten::airy", "2"],
        ["aten::bessel", "2"],
    ]


def test_cuda_computes_without_tf32_like_the_cell() -> None:
    cuda = Device(
        name="cuda",
        runtime="onnxruntime",
        providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    )
    script = render(make_spec(), make_record("alexnet/17/cuda", "fail"), cuda)
    assert "[('CUDAExecutionProvider', {'use_tf32': '0'}), 'CPUExecutionProvider']" in script


@pytest.mark.parametrize("runtime", [name for name, row in RUNTIMES.items() if row.has_script])
def test_each_runtime_with_a_script_runs_in_it(runtime: str) -> None:
    device = Device(name="own", runtime=runtime, module="own.backend", device="CPU")
    script = render(make_spec(), make_record("alexnet/17/own", "fail"), device)
    ast.parse(script)
    others = {row.package for name, row in RUNTIMES.items() if row.package and name != runtime}
    body = script.partition("\ndef run(")[2].partition("\ndef ")[0]
    assert not others & set(re.findall(r"import (\w+)$", body, re.MULTILINE))


@pytest.mark.parametrize(
    ("module", "gets"),
    [
        ("own.backend", "backend = importlib.import_module('own.backend')"),
        ("own:Net", "backend = getattr(importlib.import_module('own'), 'Net')"),
    ],
)
def test_a_backend_is_called_like_in_the_cell(module: str, gets: str) -> None:
    device = Device(name="own", runtime="backend", module=module, device="CUDA:0")
    script = render(make_spec(), make_record("alexnet/17/own", "fail"), device)
    ast.parse(script)
    assert gets in script
    assert "backend.prepare(model, device='CUDA:0')" in script
    assert "Requires only torch, onnx and own." in script
