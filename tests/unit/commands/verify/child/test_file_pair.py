"""A file is proved against another file without torch: each difference is red, its twin is not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from exporter.cli import entry_point
from exporter.commands.verify.child.file_pair import compare_files
from exporter.commands.verify.child.reference_samples import ReferenceSamples
from exporter.commands.verify.client import PairOptions
from exporter.core.errors import ExitCode, ExporterError
from exporter.gate.verify_report import DeviceVerdict
from exporter.manifest import Bound, Device
from exporter.records.record import Status

CPU = Device(name="cpu", runtime="onnxruntime")
HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
NET = f"""{HEAD} net (float[batch, 3] x) => (float[batch, 4] y)
<float[3, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 2}}, float[4] b = {{1, 2, 3, 4}}>
{{ h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = Mul(r, r) }}"""
OTHER = NET.replace("{1, 2, 3, 4, 5", "{1.001, 2, 3, 4, 5")
RENAMED = NET.replace("] w", "] v").replace("(x, w", "(x, v").replace("] b", "] c")
RENAMED = RENAMED.replace("(h, b", "(h, c")
TWO = f"{HEAD} net (float[b, 2] x) => (float[b, 2] y, float[b, 2] z) {{ y = Exp(x) z = Sin(x) }}"
SWAPPED = TWO.replace("y = Exp(x) z = Sin(x)", "z = Exp(x) y = Sin(x)")
SQUARE = f"""{HEAD} net (float[b, 2] x) => (float[b, 2] y)
<float[2, 2] w = {{1, 2, 3, 4}}> {{ y = Gemm<transB = 0>(x, w) }}"""
RESHAPE = f"""{HEAD} net (float[b, 3] x) => (float[b, 3] y)
<int64[2] s = {{-1, 3}}> {{ y = Reshape(x, s) }}"""
SCALED = f"""{HEAD} net (float[b, 3] x) => (float[b, 3] y)
<float[3] s = {{1, 2, 3}}, float[3] t = {{2, 2, 2}}> {{ m = Mul(x, s) y = Mul(m, t) }}"""
FOLDED = f"""{HEAD} net (float[b, 3] x) => (float[b, 3] y)
<float[3] s = {{2, 4, 6}}> {{ y = Mul(x, s) }}"""
HIDDEN = f"""{HEAD} net (float[b, 3] x) => (float[b, 3] y)
<float[3] s = {{1, 2, 3}}, float[3] o = {{0, 0, 0}}>
{{ m = Mul(x, s) n = Mul(m, o) y = Add(n, x) }}"""
ROWS = f"""{HEAD} net (int64[b, s] ids) => (float[b, s, 2] y)
<float[40, 2] t = {{{", ".join(map(str, range(80)))}}}> {{ y = Gather(t, ids) }}"""
CAST = f"{HEAD} net (int64[b] ids) => (float[b] y) {{ y = Cast<to = 1>(ids) }}"
#: The axes have no names, and only equal sizes are accepted.
SUM = f"""{HEAD} net (float[?, 2] x, float[?, 2] z) => (float[n, 2] y)
<int64[2] s = {{-1, 2}}> {{ c = Concat<axis = -1>(x, z) a, b = Split<axis = -1>(c)
d = Sub(a, b) y = Reshape(d, s) }}"""
NOISE = f"""{HEAD} net (float[b, 2] x) => (float[b, 2] y)
{{ n = RandomNormalLike(x) y = Add(x, n) }}"""
NAN = f"{HEAD} net (float[b, 2] x) => (float[b, 2] y) {{ a = Abs(x) m = Neg(a) y = Log(m) }}"
ROOT = f"{HEAD} net (float[b, 2] x) => (float[b, 2] y) {{ y = Sqrt(x) }}"
CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "my.own" : 1]>
net (float[b, 2] x) => (float[b, 2] y) { y = my.own.Foo(x) }"""
#: Only even heights are accepted.
PAIRS = f"""{HEAD} net (float[b, h] x) => (float[b, n, 2] y)
<int64[3] s = {{0, -1, 2}}> {{ y = Reshape(x, s) }}"""


@dataclass(frozen=True)
class Row:
    """The file, the reference, and the check that decides with a part of its message."""

    file: str
    reference: str
    check: str = ""
    text: str = ""


TABLE = {
    "the same": Row(NET, NET, "", "files: the file is the reference itself"),
    "renamed weights": Row(RENAMED, NET, "", "weights: 2 weights of the reference by other names"),
    "a weight differs": Row(
        OTHER,
        NET,
        "weights",
        "1 of 2 weights of the reference have other values: 'w' (1 of 12, by up to 1.0e-03); "
        "the first difference: MatMul h: against the reference, no error before it",
    ),
    "a transposed weight": Row(
        SQUARE.replace("{1, 2, 3, 4}", "{1, 3, 2, 4}"),
        SQUARE,
        "weights",
        "have other values: 'w' (transposed)",
    ),
    "a transposed weight of another product": Row(
        SQUARE.replace("{1, 2, 3, 4}", "{1, 3, 2, 4}").replace("transB = 0", "transB = 1"), SQUARE
    ),
    "weights before names": Row(
        OTHER.replace("batch", "n"), NET, "weights", "1 of 2 weights of the reference have other"
    ),
    "another weight by another name": Row(
        RENAMED.replace("{1, 2, 3, 4, 5", "{1.001, 2, 3, 4, 5"),
        NET,
        "weights",
        "have other values under other names: 'w' as 'v' (1 of 12, by up to 1.0e-03)",
    ),
    "names of axes": Row(
        NET.replace("batch", "n"),
        NET,
        "",
        "signature: axis 0 of input 'x' is 'n', the reference has 'batch'",
    ),
    "a fixed batch": Row(
        NET.replace("batch", "1"),
        NET,
        "signature",
        "axis 0 of input 'x' is fixed at 1, the reference has 'batch'",
    ),
    "a free batch": Row(NET, NET.replace("batch", "1")),
    "opset": Row(NET.replace(": 17", ": 9"), NET, "", "signature: opset 9, the reference has 17"),
    "old opset": Row(NET.replace(": 17", ": 9"), NET.replace(": 17", ": 9")),
    "another operator": Row(
        NET.replace("Relu", "Sigmoid"), NET, "parity", "the first difference: Sigmoid r: against"
    ),
    "another input": Row(
        NET.replace(" x)", " z)").replace("(x", "(z"), NET, "signature", "the inputs are z, the"
    ),
    "a missing output": Row(
        TWO.replace(", float[b, 2] z", ""), TWO, "signature", "the outputs are y, the reference"
    ),
    "another type": Row(
        NET, NET.replace("float[", "double["), "signature", "input 'x' is float32 [batch, 3], the"
    ),
    "exchanged outputs": Row(SWAPPED, TWO, "parity", "the outputs 'y' and 'z' are exchanged"),
    "another order": Row(
        TWO.replace("y, float[b, 2] z", "z, float[b, 2] y"),
        TWO,
        "signature",
        "the outputs have another order: z, y, in the reference y, z",
    ),
    "a size": Row(RESHAPE.replace("{-1", "{2"), RESHAPE, "weights", "have other values: 's'"),
    "an equal size": Row(RESHAPE.replace("{-1", "{0"), RESHAPE),
    "folded": Row(FOLDED, SCALED, "", "weights: 1 of 2 weights of the reference have other values"),
    "wrongly folded": Row(FOLDED.replace("{2", "{3"), SCALED, "weights", "'s' (3 of 3, by up to"),
    "hidden": Row(HIDDEN.replace("{1, 2", "{1, 5"), HIDDEN, "weights", "'s' (1 of 3, by up to"),
    "a row of a table": Row(ROWS.replace(" 79}", " 7}"), ROWS, "weights", "'t' (1 of 80, by up"),
    "a table": Row(ROWS, ROWS),
    "a cut table": Row(
        ROWS.replace("[40, 2]", "[39, 2]").replace(", 78, 79}", "}"), ROWS, "parity", "fails"
    ),
    "integers of no table": Row(CAST, CAST, "", "tell its range by `--values ids=LOW..HIGH`"),
    "larger integers": Row(
        CAST.replace("y = Cast<to = 1>(ids)", "c = Cast<to = 1>(ids) y = Sign(c)"),
        CAST,
        "values",
        "integers up to 99",
    ),
    "a mask": Row(
        CAST.replace("y = Cast<to = 1>(ids)", "c = Cast<to = 1>(ids) y = Sign(c)").replace(
            "ids", "mask"
        ),
        CAST.replace("ids", "mask"),
        "",
        "input 'mask' had 0 and 1 only",
    ),
    "equal sizes of two inputs": Row(
        SUM.replace("{-1", "{2"), SUM, "weights", "1 of 1 weight of the reference have other"
    ),
    "random": Row(NOISE, NOISE, "determinism", "the reference differs from itself"),
    "no number": Row(NAN, NAN, "power", "all elements are NaN or Inf in the reference"),
    "some numbers": Row(ROOT, ROOT),
    "a custom operator": Row(CUSTOM, CUSTOM, "load", "it needs kernels of my.own::Foo"),
    "even sizes": Row(PAIRS, PAIRS),
}


def prove(folder: Path, file: str, reference: str, **options: object) -> DeviceVerdict:
    onnx.save(parser.parse_model(reference), folder / "old.onnx")
    onnx.save(parser.parse_model(file), folder / "new.onnx")
    chosen = PairOptions.model_validate(options)
    _, (verdict,) = compare_files(folder / "new.onnx", folder / "old.onnx", (CPU,), chosen)
    return verdict


def list_texts(verdict: DeviceVerdict) -> str:
    notes = (f"{each.check}: {each.message}" for each in verdict.checks)
    return "\n".join((verdict.message, *notes))


@pytest.mark.parametrize("name", TABLE)
def test_each_difference_is_named(name: str, tmp_path: Path) -> None:
    row = TABLE[name]
    verdict = prove(tmp_path, row.file, row.reference)
    assert verdict.check == row.check, list_texts(verdict)
    assert verdict.status.is_red == bool(row.check)
    assert row.text in (verdict.message if row.check else list_texts(verdict))
    assert {path.name for path in tmp_path.iterdir()} == {"old.onnx", "new.onnx"}


def test_no_tolerance_is_advised_for_other_weights(tmp_path: Path) -> None:
    near = OTHER.replace("1.001", "1.00001")
    texts = list_texts(prove(tmp_path, near, NET))
    assert "error" in texts
    assert "rounding" not in texts
    rounded = NET.replace("r = Relu(a)", "e = Mul(a, n) r = Relu(e)")
    rounded = rounded.replace("> {", ", float[1] n = {1.00001}> {").replace(
        ">\n{", ", float[1] n = {1.00001}>\n{"
    )
    assert "if this is rounding, pass `--atol" in list_texts(prove(tmp_path, rounded, NET))


def test_a_tolerance_accepts_an_error_but_no_other_weight(tmp_path: Path) -> None:
    rough = OTHER.replace("y = Mul(r, r)", "z = Mul(r, r) y = Identity(z)")
    assert prove(tmp_path, rough, NET).check == "weights"
    bound = Bound(atol=0.05, rtol=0.01)
    wide = prove(tmp_path, rough, NET, bound=bound)
    assert wide.status is Status.PASS
    assert "1 of 2 weights" in list_texts(wide)
    assert prove(tmp_path, OTHER, NET, bound=bound).check == "weights"


def test_sizes_and_values_are_told(tmp_path: Path) -> None:
    clipped = CAST.replace("y = Cast<to = 1>(ids)", "c = Cast<to = 1>(ids) y = Min(c, n)")
    clipped = clipped.replace("{ c", "<float[1] n = {150}> { c")
    assert prove(tmp_path, clipped, CAST).status is Status.PASS
    told = prove(tmp_path, clipped, CAST, values={"ids": (0, 200)}, sizes={"b": 64})
    assert told.check == "parity"
    assert "the first difference: Min y" in told.message


def test_external_data_is_compared(tmp_path: Path) -> None:
    for name, text in (("old", NET), ("new", OTHER)):
        proto = parser.parse_model(text)
        for tensor in proto.graph.initializer:  # only raw bytes can be external
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
        onnx.save(
            proto,
            tmp_path / f"{name}.onnx",
            save_as_external_data=True,
            location=f"{name}.data",
            size_threshold=0,
        )
    files = (tmp_path / "new.onnx", tmp_path / "old.onnx")
    _, (verdict,) = compare_files(*files, (CPU,), PairOptions())
    assert verdict.check == "weights"
    assert "the first difference: MatMul h" in verdict.message
    _, (equal,) = compare_files(files[1], files[1], (CPU,), PairOptions())
    assert equal.status is Status.PASS
    (tmp_path / "old.data").unlink()
    _, (verdict,) = compare_files(*files, (CPU,), PairOptions())
    assert (verdict.status, verdict.message) == (
        Status.ERROR,
        "the reference old.onnx: external data 'old.data' is missing",
    )


def test_values_that_cannot_be_drawn_have_a_message(tmp_path: Path) -> None:
    text = f"{HEAD} net (string[b] x) => (string[b] y) {{ y = Identity(x) }}"
    verdict = prove(tmp_path, text, text)
    assert (verdict.status, verdict.check) == (Status.ERROR, "load")
    assert "input 'x' is string [b]: such values cannot be drawn" in verdict.message


def test_the_terminal_has_the_first_difference(tmp_path: Path) -> None:
    verdict = prove(tmp_path, NET.replace("Relu", "Sigmoid"), NET)
    (parity,) = (each for each in verdict.checks if each.check == "parity")
    assert "the first difference: Sigmoid r" in parity.message


def test_an_input_that_is_no_tensor_has_a_message(tmp_path: Path) -> None:
    text = f"""{HEAD} net (seq(float[b]) x) => (float[b] y)
    {{ i = Constant<value_int = 0>() y = SequenceAt(x, i) }}"""
    assert prove(tmp_path, text, text).message.startswith("input 'x' is no tensor: such values")


def test_a_weight_of_another_type_leaves_the_verdict_to_the_numbers(tmp_path: Path) -> None:
    """A quantized file has no weight of its reference."""
    onnx.save(parser.parse_model(NET), tmp_path / "old.onnx")
    proto = parser.parse_model(NET)
    weight = numpy_helper.to_array(proto.graph.initializer[0])
    stored = numpy_helper.from_array(weight.astype(np.float16), "w")
    proto.graph.initializer[0].CopyFrom(stored)
    cast = helper.make_node("Cast", ["w"], ["wide"], to=onnx.TensorProto.FLOAT)
    proto.graph.node[0].input[1] = "wide"
    proto.graph.node.insert(0, cast)
    onnx.save(proto, tmp_path / "new.onnx")
    files = (tmp_path / "new.onnx", tmp_path / "old.onnx")
    _, (verdict,) = compare_files(*files, (CPU,), PairOptions())
    assert verdict.status is Status.PASS
    assert "1 of 2 weights of the reference are not in the file: w" in list_texts(verdict)


def run(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> tuple[int, str]:
    code = entry_point.run(["verify", *arguments, "--root", str(folder)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_command_prints_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    for name, text in (("old", NET), ("new", OTHER), ("equal", NET)):
        onnx.save(parser.parse_model(text), tmp_path / f"{name}.onnx")
    (tmp_path / "text.onnx").write_text("no ONNX file")
    old, new, equal, text = (str(tmp_path / f"{n}.onnx") for n in ("old", "new", "equal", "text"))
    code, output = run(capsys, tmp_path, equal, new, text, "--reference", old)
    assert code == ExitCode.RED
    assert f"pass          {equal} on cpu" in output
    assert "weights: fail: 1 of 2 weights of the reference have other values" in output
    assert "text.onnx: is not an ONNX file, cannot be parsed" in output
    assert "3 verdicts: 1 proved, 2 red" in output
    code, output = run(capsys, tmp_path, equal, "--reference", old, "--json")
    assert code == ExitCode.OK
    (verdict,) = json.loads(output)["verdicts"]
    assert (verdict["verdict"]["status"], verdict["opset"]) == ("pass", 17)
    code, output = run(capsys, tmp_path, equal, "--reference", text)
    assert (code, "the reference text.onnx: is not an ONNX file" in output) == (ExitCode.RED, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--size", "batch=0"), "expected AXIS=N, got 'batch=0'"),
        (("--values", "x=1"), "expected INPUT=LOW..HIGH, got 'x=1'"),
        (("--entry", "net", "--atol", "1"), "--atol: belongs to `--reference FILE`"),
    ],
)
def test_wrong_options_have_a_message(
    arguments: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(parser.parse_model(NET), tmp_path / "old.onnx")
    path = str(tmp_path / "old.onnx")
    code, output = run(capsys, tmp_path, path, *arguments)
    assert code == ExitCode.MANIFEST
    assert text in output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sizes": {"bach": 2}}, "--size: the reference has no free axis 'bach'; did you mean"),
        ({"values": {"y": (0, 1)}}, "--values: the reference has no input 'y'; use x"),
    ],
)
def test_unknown_names_have_a_message(
    options: dict[str, object], text: str, tmp_path: Path
) -> None:
    with pytest.raises(ExporterError, match=text):
        prove(tmp_path, NET, NET, **options)


def write_scores(body: str, outputs: str) -> str:
    """Return a file with weights of five scores, of which 1 and 3 are equal but for rounding."""
    weight = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    weight[:, 3] = weight[:, 1] * np.float32(1.0000001)
    weights = {"w": weight, "upper": weight[:32], "lower": weight[32:]}
    stored = ", ".join(
        f"float[{len(array)}, 5] {name} = {{{', '.join(map(repr, map(float, array.ravel())))}}}"
        for name, array in weights.items()
    )
    return f"""{HEAD} net (float[b, 64] x) => ({outputs})
    <{stored}, int64[2] halves = {{32, 32}}, int64[1] two = {{2}},
    float[5] table = {{10, 20, 30, 40, 50}}> {{ {body} }}"""


WHOLE = "s = MatMul(x, w)"
HALVES = """p, q = Split<axis = 1>(x, halves) f = MatMul(p, upper) g = MatMul(q, lower)
s = Add(f, g)"""


@pytest.mark.parametrize(
    ("tail", "outputs", "wrong"),
    [
        ("c = ArgMax<axis = 1>(s)", "int64[b, 1] c", "c = ArgMin<axis = 1>(s)"),
        (
            "i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(table, i)",
            "float[b] y",
            "n = Abs(s) i = ArgMax<axis = 1, keepdims = 0>(n) y = Gather(table, i)",
        ),
        ("v, k = TopK<axis = 1>(s, two)", "int64[b, 2] k", "v, k = TopK<largest = 0>(s, two)"),
    ],
)
def test_a_choice_among_near_values_is_reviewed(
    tail: str, outputs: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = write_scores(f"{WHOLE} {tail}", outputs)
    file = write_scores(f"{HALVES} {tail}", outputs)
    sizes = {"b": 300}
    assert prove(tmp_path, file, reference, sizes=sizes).status is Status.PASS
    verdict = prove(tmp_path, write_scores(f"{HALVES} {wrong}", outputs), reference, sizes=sizes)
    assert verdict.check in ("parity", "values")
    monkeypatch.setattr(ReferenceSamples, "add_choices", lambda *_: False)
    assert prove(tmp_path, file, reference, sizes=sizes).status.is_red
