"""From an input set to the tensors of a call."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import save_file

from exporter.manifest import Axis, Case, Constant, Fill, InputsFrom, ModelSpec
from exporter.manifest.resolved.call import SizeRule
from exporter.worker.inputs.call import (
    build_call,
    build_tensor_call,
    from_numpy,
    to_numpy,
    view_as_real,
)
from exporter.worker.inputs.data_files import fit_to_shape, read_tensor, resolve_file_sizes
from exporter.worker.inputs.input_sets import InputSet, choose_usual_sets
from exporter.worker.inputs.input_tensors import (
    draw_inputs,
    draw_lengths,
    draw_mask,
)
from exporter.worker.inputs.inputs_from import resolve_inputs_from
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare_input, make_contract, make_fill


def declared_set(spec: ModelSpec) -> InputSet:
    return choose_usual_sets(spec)[0]


def draw_one(**changes: object) -> torch.Tensor:
    spec = make_contract("Affine", inputs=(declare_input("x", 200, **changes),), axes=())
    return draw_inputs(spec, declared_set(spec), ROOT)["x"]


def test_the_same_seed_draws_the_same_values() -> None:
    spec = make_contract("Affine")
    first = draw_inputs(spec, declared_set(spec), ROOT)["x"]
    assert first.shape == (3, 4)
    assert torch.equal(first, draw_inputs(spec, declared_set(spec), ROOT)["x"])
    other = make_contract("Affine", seed=1)
    assert not torch.equal(first, draw_inputs(other, declared_set(other), ROOT)["x"])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("value", 5, [7.75] * 4),
        ("zeros", 0, [0.25] * 4),
    ],
)
def test_fixed_values_are_replaced_by_nearby_values(
    kind: str, value: int, expected: list[float]
) -> None:
    spec = make_contract(
        "Affine", inputs=(declare_input("x", 4, fill=make_fill(kind, value=value)),), axes=()
    )
    assert draw_inputs(spec, choose_usual_sets(spec)[-1], ROOT)["x"].tolist() == expected


def test_integers_below_the_size_of_an_axis_follow_its_size() -> None:
    edges = declare_input("edges", 2, 40, dtype="int64", fill=make_fill("randint", axis="nodes"))
    spec = make_contract(
        "", inputs=(declare_input("x", "nodes", 3), edges), axes=(Axis(name="nodes", example=3),)
    )
    sets = choose_usual_sets(spec)
    assert {each.sizes["nodes"] for each in sets} >= {1, 3, 7}
    for chosen in sets:
        values = draw_inputs(spec, chosen, ROOT)["edges"]
        size = chosen.sizes["nodes"]
        assert 0 <= values.min() <= values.max() < size, chosen.name
        if chosen.kind == "axis":
            assert set(values.flatten().tolist()) == {*range(size)}, chosen.name


def test_each_fill_generates_its_values() -> None:
    assert 0.7 < draw_one().std() < 1.3
    uniform = draw_one(fill=make_fill("uniform", low=2.0, high=3.0))
    assert uniform.min() >= 2.0
    assert uniform.max() <= 3.0
    assert uniform.std() > 0.1
    integers = draw_one(dtype="int64", fill=make_fill("randint", low=5, high=8))
    assert integers.dtype is torch.int64
    assert set(integers.tolist()) == {5, 6, 7}
    chances = draw_one(dtype="bool", fill=make_fill("bernoulli", probability=0.25))
    assert chances.dtype is torch.bool
    assert 10 < int(chances.sum()) < 90
    assert torch.equal(draw_one(fill=make_fill("zeros")), torch.zeros(200))
    assert torch.equal(draw_one(fill=make_fill("ones")), torch.ones(200))
    assert torch.equal(draw_one(fill=make_fill("arange")), torch.arange(200.0))
    assert torch.equal(draw_one(fill=make_fill("value", value=5)), torch.full((200,), 5.0))
    assert torch.equal(
        draw_one(fill=make_fill("python", python="nets.py:fill_with_sevens")),
        torch.full((200,), 7.0),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "bool"])
def test_every_dtype_can_be_drawn(dtype: str) -> None:
    kind = "normal" if "float" in dtype else "bernoulli"
    tensor = draw_one(dtype=dtype, fill=make_fill(kind))
    assert tensor.dtype is getattr(torch, dtype)
    assert len(tensor.unique()) > 1


def test_a_case_sets_values_and_sizes() -> None:
    spec = make_contract(
        "Affine",
        "x [batch, 4], count int64 [] -> y [batch, 3]",
        cases=(Case(name="nine", fills={"count": Fill(kind="value", value=9)}, axes={"batch": 8}),),
    )
    spec = spec.model_copy(
        update={
            "inputs": (
                spec.inputs[0],
                spec.inputs[1].model_copy(update={"fill": make_fill("value", value=5)}),
            )
        }
    )
    sets = choose_usual_sets(spec)
    assert int(draw_inputs(spec, sets[0], ROOT)["count"]) == 5
    nine = draw_inputs(spec, next(item for item in sets if item.name == "nine"), ROOT)
    assert int(nine["count"]) == 9
    assert nine["x"].shape == (8, 4)


def test_a_value_of_another_shape_fails_with_both_shapes() -> None:
    spec = make_contract(
        "Affine", cases=(Case(name="odd", fills={"x": Fill(kind="value", value=[1.0, 2.0])}),)
    )
    with pytest.raises(Failure) as caught:
        draw_inputs(
            spec, next(item for item in choose_usual_sets(spec) if item.kind == "case"), ROOT
        )
    assert "input 'x' of set 'odd': the values are torch.float32 [2]" in caught.value.message
    assert "declared float32 [3, 4]" in caught.value.message


def test_paths_build_tuples_dicts_and_keywords() -> None:
    spec = make_contract(
        "Affine",
        inputs=(
            declare_input("a", 2, at="args[0]"),
            declare_input("b", 2, at="args[1][0]"),
            declare_input("c", 2, at="args[1][1]"),
            declare_input("d", 2, at="kwargs.past[0].key"),
            declare_input("e", 2, at="kwargs.mask"),
        ),
        axes=(),
        constants=(
            Constant(at="args[2]", value=True),
            Constant(at="kwargs.past[0].size", value={"n": 3}),
        ),
    )
    call = build_call(spec, {name: name.upper() for name in "abcde"}, lambda value: value)
    assert call.args == ("A", ("B", "C"), True)
    assert call.kwargs == {"past": ({"key": "D", "size": {"n": 3}},), "mask": "E"}


def test_a_model_that_writes_into_its_input_changes_a_clone() -> None:
    spec = make_contract("Affine", axes=(Axis(name="batch", example=3),))
    tensors = draw_inputs(spec, declared_set(spec), ROOT)
    before = tensors["x"].clone()
    build_tensor_call(spec, tensors).args[0].zero_()
    assert torch.equal(tensors["x"], before)


_SIDES = ("left", "right", "random")
_SHAPES = [(1,), (7,), (1, 1), (1, 5), (3, 1), (2, 2), (4, 9), (2, 1, 5, 5)]


def generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(8)]


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("side", _SIDES)
def test_every_row_has_an_allowed_element(side: str, shape: tuple[int, ...]) -> None:
    for generator in generators():
        mask = draw_mask(side, shape, generator)
        assert mask.dtype is torch.bool
        assert mask.shape == shape
        assert mask.any(-1).all()
        steps = mask.int().diff(dim=-1)
        if side == "right":
            assert (steps <= 0).all()
        if side == "left":
            assert (steps >= 0).all()


def test_one_row_is_complete_and_others_are_padded() -> None:
    for generator in generators():
        assert draw_mask("right", (4, 9), generator).all(-1).sum() == 1


@pytest.mark.parametrize(("count", "size"), [(1, 1), (1, 5), (3, 1), (2, 2), (4, 9)])
def test_lengths_are_inside_the_axis(count: int, size: int) -> None:
    for generator in generators():
        lengths = draw_lengths((count,), size, generator)
        assert lengths.min() >= 1
        assert lengths.max() <= size
        assert count == 1 or lengths.max() == size


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_masks_stay_empty(shape: tuple[int, int]) -> None:
    generator, *_ = generators()
    assert draw_mask("right", shape, generator).shape == shape
    assert draw_lengths((3,), 0, generator).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32", "uint8"])
@pytest.mark.parametrize("kind", ["mask", "padding"])
def test_probes_of_masks_are_valid(kind: str, dtype: str) -> None:
    allowed = 1 if kind == "mask" else 0
    spec = make_contract(
        "Affine",
        inputs=(
            declare_input("m", "b", "n", dtype=dtype, fill=make_fill(kind, side="left")),
            declare_input("k", "b", dtype="int32", fill=make_fill("lengths_of", axis="n")),
        ),
        axes=(Axis(name="b", example=2), Axis(name="n", example=3)),
    )
    drawn = {}
    for chosen in choose_usual_sets(spec):
        tensors = draw_inputs(spec, chosen, ROOT)
        drawn[chosen.name] = tensors
        assert (tensors["m"] == allowed).any(-1).all()
        assert ((tensors["m"] == 0) | (tensors["m"] == 1)).all()
        assert 1 <= int(tensors["k"].min()) <= int(tensors["k"].max()) <= chosen.sizes["n"]
    declared = drawn["declared"]
    assert not torch.equal(drawn["other m"]["m"], declared["m"])
    assert not torch.equal(drawn["other k"]["k"], declared["k"])


DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_a_round_trip_keeps_values_shape_and_dtype(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.randn(shape).mul(3).to(dtype)
    array = to_numpy(tensor)
    assert array.shape == ((*shape, 2) if dtype.is_complex else shape)
    assert array.dtype.name == {
        torch.complex64: "float32",
        torch.complex128: "float64",
    }.get(dtype, str(dtype).removeprefix("torch."))
    restored = from_numpy(array, is_complex=dtype.is_complex)
    assert restored.dtype is dtype
    assert torch.equal(restored, tensor)


def test_complex_numbers_become_pairs_of_real_and_imaginary_part() -> None:
    number = torch.tensor(3 - 4j)
    np.testing.assert_array_equal(to_numpy(number), np.float32([3, -4]), strict=True)
    # The conjugate of a tensor is a flag on it, as is the sign of its imaginary part.
    np.testing.assert_array_equal(to_numpy(number.conj()), np.float32([3, 4]), strict=True)
    np.testing.assert_array_equal(to_numpy(number.conj().imag), np.float32(4), strict=True)
    assert view_as_real(torch.ones(2)).shape == (2,)


def _contract(function: str) -> ModelSpec:
    return make_contract(
        "Affine",
        inputs=tuple(
            declare_input(name, axis, 4, at="")
            for name, axis in (("x", "seq"), ("past", "past"), ("mask", "total"))
        ),
        inputs_from=InputsFrom(function=f"calls.py:{function}"),
        axes=(
            Axis(name="seq", example=5),
            Axis(name="past", example=3),
            Axis(name="total", example=8, rule=SizeRule(kind="sum", operands=("past", "seq"))),
        ),
    )


def test_function_receives_the_sizes_of_derived_axes() -> None:
    spec = resolve_inputs_from(_contract("build_sized_cache"), ROOT)
    for chosen in choose_usual_sets(spec):
        tensors = draw_inputs(spec, chosen, ROOT)
        assert len(tensors["mask"]) == len(tensors["x"]) + len(tensors["past"])


def test_tensors_define_the_sizes_of_derived_axes() -> None:
    spec = resolve_inputs_from(_contract("build_cache"), ROOT)
    assert {axis.name: axis.example for axis in spec.axes} == {"seq": 5, "past": 2, "total": 7}


def test_tensor_of_another_size_than_the_rule_is_reported() -> None:
    message = r"the axis 'total' has the size 6, declared is past \+ seq = 7"
    with pytest.raises(Failure, match=message):
        resolve_inputs_from(_contract("build_short_mask"), ROOT)


_ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", _ARRAY)
    with ZipFile(tmp_path / "member.npz", "w") as archive:
        archive.writestr("a.txt", "no array")
    np.savez(tmp_path / "x.npz", a=_ARRAY, b=_ARRAY.astype(">f4"), c=np.array(["text"]))
    tensor = torch.from_numpy(_ARRAY)
    save_file({"a": tensor, "half": tensor.to(torch.bfloat16)}, tmp_path / "x.safetensors")
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(_ARRAY).SerializeToString())
    return tmp_path


@pytest.mark.parametrize("text", ["x.npy", "x.pb", "x.npz:a", "x.npz:b", "x.safetensors:a"])
def test_every_format_contains_the_same_tensor(text: str, folder: Path) -> None:
    tensor = read_tensor(folder, text)
    assert tensor.dtype is torch.float32
    assert torch.equal(tensor, torch.from_numpy(_ARRAY))


def test_bfloat16_stays_bfloat16(folder: Path) -> None:
    assert read_tensor(folder, "x.safetensors:half").dtype is torch.bfloat16
    proto = onnx.helper.make_tensor("x", onnx.TensorProto.BFLOAT16, [2], [1.0, 2.0])
    (folder / "half.pb").write_bytes(proto.SerializeToString())
    assert torch.equal(read_tensor(folder, "half.pb"), torch.tensor([1, 2], dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.npz:aa", "x.npz has no tensor 'aa'; did you mean 'a'?"),
        ("x.safetensors:zz", "x.safetensors has no tensor 'zz'; it has a, half"),
        ("x.npz:c", "is not a dtype of tensors"),
        ("gone.npy", "gone.npy: the file cannot be read"),
        ("bad.npy", "bad.npy: the file cannot be read"),
        ("member.npz:a.txt", "member.npz: the file cannot be read: it is no array"),
        ("bad.npz:a", "bad.npz: the file cannot be read"),
        ("bad.pb", "bad.pb: the file cannot be read"),
        ("bad.safetensors:a", "bad.safetensors: the file cannot be read"),
        ("objects.npy", "objects.npy: the file cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_an_unreadable_tensor_is_reported(text: str, message: str, folder: Path) -> None:
    for suffix in ("npy", "npz", "pb", "safetensors"):
        (folder / f"bad.{suffix}").write_bytes(b"\x93NUMPY no tensor \xff" * 9)
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(Failure) as caught:
        read_tensor(folder, text)
    assert message in caught.value.message
    assert str(folder) not in caught.value.message


def test_at_other_sizes_values_are_cut_or_repeated() -> None:
    tensor = torch.arange(6).reshape(3, 2)
    item = declare_input("x", "batch", 2)
    assert fit_to_shape(tensor, item, (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert fit_to_shape(tensor, item, (5, 2)).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert fit_to_shape(tensor, item, (0, 2)).shape == (0, 2)
    assert fit_to_shape(tensor, item, (3, 4)).shape == (3, 2), "a fixed size is checked later"


def _spec(**changes: object) -> ModelSpec:
    inputs = (declare_input("x", fill=make_fill("file", file="x.npy")),)
    return make_contract("Affine", manifest="net.toml", inputs=inputs, **changes)


def test_a_set_has_the_values_of_the_file(folder: Path) -> None:
    np.save(folder / "five.npy", np.ones((5, 4), np.float32))
    case = Case(name="five", axes={"batch": 5}, fills={"x": Fill(kind="file", file="five.npy")})
    spec = _spec(cases=(case,))
    drawn = {each.name: draw_inputs(spec, each, folder)["x"] for each in choose_usual_sets(spec)}
    assert torch.equal(drawn["declared"], torch.from_numpy(_ARRAY))
    assert torch.equal(drawn["five"], torch.ones(5, 4))
    assert not torch.equal(drawn["other x"], drawn["declared"])
    assert torch.equal(drawn["batch=1"], drawn["declared"][:1])


@pytest.mark.parametrize(
    ("rows", "limits", "size"), [(7, {}, 7), (1, {}, 3), (7, {"max": 6}, 3), (6, {"min": 3}, 6)]
)
def test_a_dynamic_axis_has_the_size_of_the_file(
    rows: int, limits: dict[str, int], size: int, folder: Path
) -> None:
    np.save(folder / "x.npy", np.ones((rows, 4), np.float32))
    spec = resolve_file_sizes(_spec(axes=(Axis(name="batch", example=3, **limits),)), folder)
    assert [axis.example for axis in spec.axes] == [size]
    assert draw_inputs(spec, choose_usual_sets(spec)[0], folder)["x"].shape == (size, 4)


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_a_file_of_another_shape_or_dtype_fails_with_both(change: str, folder: Path) -> None:
    if change == "shape":
        np.save(folder / "x.npy", _ARRAY[:, :2])
        spec = _spec()
    else:
        np.save(folder / "x.npy", _ARRAY.astype(np.float64))
        spec = _spec()
    with pytest.raises(Failure) as caught:
        draw_inputs(spec, choose_usual_sets(spec)[0], folder)
    assert "declared float32 [" in caught.value.message
    assert "(from x.npy)" in caught.value.message
