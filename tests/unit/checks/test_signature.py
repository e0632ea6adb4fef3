from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import GraphProto, TensorProto, helper, parser

from exporter.checks.structure_checks import check_signature
from exporter.manifest import Input, ModelSpec, Output
from exporter.records.record import Status
from tests.unit.checks.contexts import DOUBLE, contract, make_subject, value

HEAD = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>'
TWO = (
    HEAD
    + """
g (float[batch, 3] a, int64[batch] b) => (float[batch, 3] c, int64[batch] d)
{ c = Relu(a) d = Neg(b) }"""
)


def two(**fields: object) -> ModelSpec:
    inputs = (value(Input, "a", "batch, 3"), value(Input, "b", "batch", "int64"))
    outputs = (value(Output, "c", "batch, 3"), value(Output, "d", "batch", "int64"))
    return contract(**{"inputs": inputs, "outputs": outputs, **fields})


def message(folder: Path, text: str, spec: ModelSpec) -> str:
    """Return the message of the check, which is present only after a failure."""
    result = check_signature(make_subject(folder, text, spec=spec))
    assert result.check == "signature"
    assert result.status is (Status.FAIL if result.message else Status.PASS)
    return result.message


@pytest.mark.parametrize(
    ("declared", "actual", "expected"),
    [
        ("batch, 3", "2, 3", "axis 'batch' of input 'x' is fixed at 2"),
        ("2, 3", "batch, 3", "dimension 0 of input 'x' is dynamic ('batch'), declared 2"),
        ("batch, 3", "s0, 3", "axis 'batch' of input 'x' has the name 's0'"),
        ("batch, 3", "batch, 4", "dimension 1 of input 'x' is 4, declared 3"),
        ("batch, 3", "batch, n", "dimension 1 of input 'x' is dynamic ('n'), declared 3"),
        ("batch, 3", "?, 3", "axis 'batch' of input 'x' has no name"),
        ("batch, 3", "batch, ?", "dimension 1 of input 'x' is dynamic ('?'), declared 3"),
        ("batch, 3", "batch", "input 'x' is [batch], declared [batch, 3]"),
        ("batch, 3", "batch, 3, 1", "input 'x' is [batch, 3, 1], declared [batch, 3]"),
        ("batch, 3", "", "input 'x' is [], declared [batch, 3]"),
        ("", "1", "input 'x' is [1], declared []"),
        ("batch, time", "batch, batch", "axis 'time' of input 'x' has the name 'batch'"),
        ("0, 3", "?, 3", "dimension 0 of input 'x' is dynamic ('?'), declared 0"),
        ("batch, 3", "0, 3", "axis 'batch' of input 'x' is fixed at 0"),
    ],
)
def test_every_dimension_counts(declared: str, actual: str, expected: str, tmp_path: Path) -> None:
    text = HEAD + f"g (float[{actual}] x) => (float[{actual}] y) {{ y = Relu(x) }}"
    if not actual:
        text = text.replace("float[]", "float")
        model = parser.parse_model(text)
        for item in (*model.graph.input, *model.graph.output):
            item.type.tensor_type.shape.SetInParent()
    else:
        model = parser.parse_model(text)
    inputs, outputs = (value(Input, "x", declared),), (value(Output, "y", declared),)
    result = check_signature(
        make_subject(tmp_path, model, spec=contract(inputs=inputs, outputs=outputs))
    )
    assert result.status is Status.FAIL
    of_output = expected.replace("input 'x'", "output 'y'")
    assert result.message == f"{expected}; {of_output}"


def test_scalars_and_empty_shapes_pass(tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float x, float[0] z) => (float y) { y = Sum(x, z) }")
    for item in (model.graph.input[0], *model.graph.output):
        item.type.tensor_type.shape.SetInParent()
    spec = contract(
        inputs=(value(Input, "x", ""), value(Input, "z", "0")), outputs=(value(Output, "y", ""),)
    )
    result = check_signature(make_subject(tmp_path, model, spec=spec))
    assert (result.status, result.message) == (Status.PASS, "")


def no_shape(graph: GraphProto) -> None:
    graph.output[0].type.tensor_type.ClearField("shape")


def unknown_type(graph: GraphProto) -> None:
    graph.output[0].type.tensor_type.elem_type = 999


def one_name(graph: GraphProto) -> None:
    graph.output.append(graph.output[0])


def default(graph: GraphProto) -> None:
    graph.initializer.append(helper.make_tensor("x", TensorProto.FLOAT, [1, 3], [0.0] * 3))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (no_shape, "output 'y' has no shape, declared [batch, 3]"),
        (unknown_type, "output 'y' is of unknown type 999, declared float32"),
        (one_name, "2 outputs have the name 'y'"),
        (default, "input 'x' has a default value: the file runs without it"),
    ],
)
def test_an_invalid_end_fails(
    change: Callable[[GraphProto], None], expected: str, tmp_path: Path
) -> None:
    model = parser.parse_model(DOUBLE)
    change(model.graph)
    result = check_signature(make_subject(tmp_path, model))
    assert result.status is Status.FAIL
    assert expected in result.message


@pytest.mark.parametrize(
    ("word", "dtype"),
    [
        ("float", "float32"),
        ("double", "float64"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("int64", "int64"),
        ("uint8", "uint8"),
        ("bool", "bool"),
    ],
)
def test_dtypes_have_the_names_of_pytorch(word: str, dtype: str, tmp_path: Path) -> None:
    text = HEAD + f"g ({word}[n] x) => ({word}[n] y) {{ y = Identity(x) }}"
    inputs, outputs = (value(Input, "x", "n", dtype),), (value(Output, "y", "n", dtype),)
    assert message(tmp_path, text, contract(inputs=inputs, outputs=outputs)) == ""
    other = "int8" if dtype != "int8" else "bool"
    wrong = (value(Input, "x", "n", other),)
    expected = message(tmp_path, text, contract(inputs=wrong, outputs=outputs))
    assert expected == f"input 'x' is {dtype}, declared {other}"


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [
        (DOUBLE, contract(), ""),
        (TWO, two(), ""),
        (
            TWO.replace(", int64[batch] b)", ")").replace("d = Neg(b)", "d = Shape(a)"),
            two(),
            "the graph ignores input 'b': the file has 1 (a), declared 2 (a, b)",
        ),
        (
            TWO,
            two(inputs=(value(Input, "a", "batch, 3"),)),
            "inputs differ: the file has 2 (a, b), declared 1 (a)",
        ),
        (
            TWO.replace(" d", " d_1"),
            two(),
            "outputs differ: the file has 2 (c, d_1), declared 2 (c, d)",
        ),
        (
            TWO,
            two(inputs=two().inputs[::-1], outputs=two().outputs[::-1]),
            "inputs have another order: the file has 2 (a, b), declared 2 (b, a); "
            + "outputs have another order: the file has 2 (c, d), declared 2 (d, c)",
        ),
        (
            HEAD + "g () => (float[3] y) { y = Constant<value_floats = [1.0, 2.0, 3.0]>() }",
            contract(outputs=(value(Output, "y", "3"),)),
            "the graph ignores input 'x': the file has none, declared 1 (x)",
        ),
        (
            HEAD + "g (float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x) }",
            contract(inputs=(value(Input, "x", "n"),), outputs=(value(Output, "y", "n"),)),
            "output 'y' is not a tensor but sequence",
        ),
        (
            HEAD + "g (double[5, 4] x) => (float[b, 3] z) { y = Neg(x) z = Cast<to = 1>(y) }",
            contract(),
            "input 'x' is float64, declared float32; axis 'batch' of input 'x' is fixed at 5; "
            + "dimension 1 of input 'x' is 4, declared 3; "
            + "outputs differ: the file has 1 (z), declared 1 (y)",
        ),
    ],
)
def test_the_message_has_both_sides_of_all_differences(
    text: str, spec: ModelSpec, expected: str, tmp_path: Path
) -> None:
    assert message(tmp_path, text, spec) == expected


IGNORING = HEAD + "g (float[batch, 3] a, int64[batch] b) => (float[batch, 3] c, int64[batch] d) "


@pytest.mark.parametrize(
    ("body", "is_ignored"),
    [
        ("{ c = Relu(a) d = Shape(a) }", True),
        ("{ c = Relu(a) unread = Neg(b) d = Shape(a) }", True),
        (
            "{ c = Relu(a) d = own.first(a, b) }"
            + '<domain: "own", opset_import: ["" : 18]>'
            + "first (p, q) => (r) { s = Neg(q) r = Shape(p) }",
            True,
        ),
        (
            "{ c = Relu(a) t = Shape(a) k = Constant<value = bool {1}>() d = If(k)"
            + "<then_branch = t () => (int64[n] p) { p = Neg(t) },"
            + " else_branch = e () => (int64[n] q) { u = Neg(b) q = Abs(t) }> }",
            True,
        ),
        (
            "{ c = Relu(a) t = Shape(a) k = Constant<value = bool {1}>() d = If(k)"
            + "<then_branch = t () => (int64[n] p) { b2 = Abs(t) p = Neg(b2) },"
            + " else_branch = e () => (int64[n] b) { b = Abs(t) }> }",
            True,
        ),
        ("{ c = Relu(a) d = Identity(b) }", False),
        (
            "{ c = Relu(a) k = Constant<value = bool {1}>() d = If(k)"
            + "<then_branch = t () => (int64[n] p) { p = Neg(b) },"
            + " else_branch = e () => (int64[n] q) { q = Constant<value_ints = [1]>() }> }",
            False,
        ),
        (
            "{ c = Relu(a) d = own.second(a, b) }"
            + '<domain: "own", opset_import: ["" : 18]> second (p, q) => (r) { r = Neg(q) }',
            False,
        ),
        (
            "{ c = Relu(a) d = own.outer(a, b) }"
            + '<domain: "own", opset_import: ["" : 18, "own" : 1]> outer (p, q) => (r)'
            + "{ r = own.inner(q) }"
            + '<domain: "own", opset_import: ["" : 18]> inner (q) => (r) { r = Neg(q) }',
            False,
        ),
        ("{ c = Relu(a) d = own.unknown(a, b) }", False),
        (
            "{ c = Relu(a) d = own.short(b) }"
            + '<domain: "own", opset_import: ["" : 18]> short (p, left_out) => (r) { r = Neg(p) }',
            False,
        ),
        (  # a recursive function ends
            "{ c = Relu(a) d = own.f(b) }"
            + '<domain: "own", opset_import: ["own" : 1]> f (p) => (r) { r = own.f(p) }',
            False,
        ),
    ],
)
def test_an_ignored_input_fails(body: str, is_ignored: bool, tmp_path: Path) -> None:
    expected = "the graph ignores input 'b'" if is_ignored else ""
    assert message(tmp_path, IGNORING + body, two()) == expected


def test_an_input_that_is_also_an_output_is_used(tmp_path: Path) -> None:
    text = HEAD + "g (float[batch, 3] x) => (float[batch, 3] x) {}"
    outputs = (value(Output, "x", "batch, 3"),)
    assert message(tmp_path, text, contract(outputs=outputs)) == ""


@pytest.mark.parametrize(("ir_version", "requested"), [(8, True), (4, True), (3, False), (3, True)])
def test_listed_initializers_pass_if_requested_or_needed(
    ir_version: int, requested: bool, tmp_path: Path
) -> None:
    model = parser.parse_model(DOUBLE)
    model.ir_version = ir_version
    model.graph.input.append(helper.make_tensor_value_info("two", TensorProto.FLOAT, [1]))
    spec = contract(options={"keep_initializers_as_inputs": requested})
    result = check_signature(make_subject(tmp_path, model, spec=spec))
    assert (result.status, result.message) == (Status.PASS, "")


def test_listed_initializers_are_counted(tmp_path: Path) -> None:
    model = parser.parse_model(DOUBLE)
    model.ir_version = 4
    for name in (f"w{n}" for n in range(6)):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [1], [0.0]))
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    result = check_signature(make_subject(tmp_path, model))
    assert result.status is Status.FAIL
    assert result.message == "6 initializers are listed as inputs: w0, w1, w2, w3, w4 and 1 more"


PAIRS = f"""{HEAD} g (float[n, 4, 2] z) => (double[n, 2] w) <int64[1] k = {{1}}>
{{ a = ReduceSum<keepdims = 0>(z, k) w = Cast<to = 11>(a) }}"""


@pytest.mark.parametrize(
    ("z", "w", "expected"),
    [
        (("n, 4", "complex64"), ("n", "complex128"), ""),
        (
            ("n, 4, 2", "complex64"),
            ("n", "complex128"),
            "input 'z' is [n, 4, 2], declared [n, 4, 2, 2]",
        ),
        (
            ("n, 4", "complex64"),
            ("n", "complex64"),
            "output 'w' is float64, declared complex64, stored as pairs of float32",
        ),
        (("n, 3", "complex64"), ("n", "complex128"), "dimension 1 of input 'z' is 4, declared 3"),
        (("n, 4, 2", "float32"), ("n, 2", "float64"), ""),
    ],
)
def test_complex_numbers_are_pairs(
    z: tuple[str, str], w: tuple[str, str], expected: str, tmp_path: Path
) -> None:
    spec = contract(inputs=(value(Input, "z", *z),), outputs=(value(Output, "w", *w),))
    assert message(tmp_path, PAIRS, spec) == expected
