"""Specs for the models of `nets.py`, in the form that the manifest package returns."""

from __future__ import annotations

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


def make_contract(net: str, **changes: object) -> ModelSpec:
    """Return a spec with `changes`; by default `x [batch, 4]` and `y [batch, 3]`."""
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
    return ModelSpec.model_validate(values | changes)


def make_fill(kind: str, **changes: object) -> Fill:
    return Fill.model_validate({"kind": kind} | changes)
