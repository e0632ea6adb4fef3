"""Contracts for `nets.py`, as the manifest layer would resolve them."""

from __future__ import annotations

from pathlib import Path

from exporter.manifest import (
    Axis,
    Fill,
    Input,
    ModelSpec,
    Output,
)

ROOT = Path(__file__).resolve().parents[2]


def given(name: str = "x", *shape: int | str, at: str = "args[0]", **changes: object) -> Input:
    return Input.model_validate({"name": name, "shape": shape or ("batch", 4), "at": at} | changes)


def put_out(name: str = "y", *shape: int | str, dtype: str = "float32") -> Output:
    return Output(name=name, shape=shape, dtype=dtype)


def contract(net: str, **changes: object) -> ModelSpec:
    """A contract of one input `x [batch, 4]` and one output `y [batch, 3]`, unless changed."""
    values: dict[str, object] = {
        "id": "net",
        "manifest": "tests/worker/net.toml",
        "line": 1,
        "source": f"nets.py:{net}",
        "opsets": (17, 18),
        "devices": ("cpu",),
        "inputs": (given(),),
        "outputs": (put_out("y", "batch", 3),),
        "axes": (Axis(name="batch", example=3),),
        "timeout": 60.0,
    }
    return ModelSpec.model_validate(values | changes)


def fill(kind: str, **changes: object) -> Fill:
    return Fill.model_validate({"kind": kind} | changes)
