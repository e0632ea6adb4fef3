"""The script of a reproducer is valid Python for all names and messages."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from exporter.jobs.reference import Reference, Sample
from exporter.manifest import (
    Axis,
    Constant,
    Container,
    Device,
    Input,
    ModelSpec,
    Output,
)
from exporter.records.record import (
    Blame,
    Culprit,
    OutputLimit,
    Record,
    Route,
)
from exporter.tools.repro.script import (
    format_call,
    format_flat_argument,
    format_flat_call,
    format_hints,
    format_options,
    render_readme,
    render_repro_script,
    split_reference,
)
from tests.unit.factory import make_record, make_spec
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

DECLARED = Sample(index=0, name="declared", kind="declared", axes={"batch": 3})
REFERENCE = Reference(samples=(DECLARED,), noise=(1e-7,), output_spread=(0.5,))
CPU = Device(name="cpu", runtime="onnxruntime")
DYNAMO = Route(exporter="dynamo", capture="export", reason="")
TORCHSCRIPT = Route(exporter="torchscript", capture="trace", reason="")


def read_constants(script: str) -> dict[str, Any]:
    """Return the constants at the top of the script."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and not isinstance(node.value, ast.Attribute)
    }


def render(spec: ModelSpec, record: Record, device: Device = CPU) -> str:
    return render_repro_script(spec, record, device, DECLARED, REFERENCE)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("cell", ["alexnet/17/cpu", "alexnet/18/cpu"])
def test_any_text_stays_a_literal(text: str, cell: str) -> None:
    harmless = text.encode("utf-8", "replace").decode()
    spec = make_spec(
        init={"name": harmless},
        options={"custom_opsets": {harmless: 1}},
        constants=(Constant(at="kwargs.word", value=harmless),),
        inputs=(Input(name=harmless, shape=("batch", 3), at="args[0]"),),
        outputs=(Output(name=harmless, shape=("batch", 3)),),
    )
    script = render(spec, make_record(cell, "fail", message=harmless))
    constants = read_constants(script)
    assert constants["INPUTS"] == [harmless]
    assert constants["OUTPUTS"] == [harmless]
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
    assert format_flat_call(spec, format_flat_argument).startswith(
        "(as_number(inputs['n']), inputs['m'].clone()"
    )


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


def test_cuda_computes_without_tf32_like_the_cell() -> None:
    cuda = Device(
        name="cuda",
        runtime="onnxruntime",
        providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    )
    script = render(make_spec(), make_record("alexnet/17/cuda", "fail"), cuda)
    assert "[('CUDAExecutionProvider', {'use_tf32': '0'}), 'CPUExecutionProvider']" in script


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
