"""Specs for the models of `nets.py`, in the form that the manifest package returns."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.manifest import Axis, Fill, Input, ModelSpec, Output

ROOT = Path(__file__).resolve().parents[2]


def declare_input(
    name: str = "x", *shape: int | str, at: str = "args[0]", **changes: object
) -> Input:
    """Return an input of the given shape, by default `[batch, 4]`."""
    return Input.model_validate({"name": name, "shape": shape or ("batch", 4), "at": at} | changes)


def declare_output(name: str = "y", *shape: int | str, dtype: str = "float32") -> Output:
    return Output(name=name, shape=shape, dtype=dtype)


def declare(signature: str) -> dict[str, object]:
    """Return inputs, outputs and axes of `x [batch, 4], ids int64 [length=5] -> y [batch, 3]`.

    A dtype follows the name. An axis has its example at one place; that of `batch` is 3, and axes
    of outputs only have none.
    """
    sides, examples = [], {"batch": 3}
    for side in signature.split(" -> "):
        values = []
        for name, dtype, text in re.findall(r"(\w+)(?: (\w+))? \[(.*?)\]", side):
            sizes = [size.partition("=") for size in text.split(", ") if size]
            examples |= {axis: int(example) for axis, _, example in sizes if example}
            shape = tuple(int(size) if size.isdigit() else size for size, *_ in sizes)
            values.append({"name": name, "dtype": dtype or "float32", "shape": shape})
        sides.append(values)
    inputs, outputs = sides
    used = dict.fromkeys(size for value in inputs + outputs for size in value["shape"])
    return {
        "inputs": tuple(
            Input.model_validate(value | {"at": f"args[{index}]"})
            for index, value in enumerate(inputs)
        ),
        "outputs": tuple(Output.model_validate(value) for value in outputs),
        "axes": tuple(
            Axis(name=name, example=examples.get(name)) for name in used if isinstance(name, str)
        ),
    }


def make_contract(net: str, signature: str = "", **changes: object) -> ModelSpec:
    """Return a spec with `changes`; by default `x [batch, 4] -> y [batch, 3]`."""
    values: dict[str, object] = {
        "id": "net",
        "manifest": "tests/worker/net.toml",
        "line": 1,
        "source": f"nets.py:{net}",
        "opsets": (17, 18),
        "devices": ("cpu",),
        "inputs": (declare_input(),),
        "outputs": (declare_output("y", "batch", 3),),
        "axes": (Axis(name="batch", example=3),),
        "timeout": 60.0,
    }
    declared = declare(signature) if signature else {}
    return ModelSpec.model_validate(values | declared | changes)


def make_fill(kind: str, **changes: object) -> Fill:
    return Fill.model_validate({"kind": kind} | changes)
