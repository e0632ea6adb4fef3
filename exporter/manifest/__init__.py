"""TOML text in, a frozen, typed `Manifest` out, or every problem with its file and line."""

from exporter.manifest.bounds import bound_of
from exporter.manifest.call_spec import (
    Axis,
    Case,
    Constant,
    Container,
    Dim,
    Fill,
    Input,
    InputsFrom,
)
from exporter.manifest.calls import parse_at
from exporter.manifest.explain import explain
from exporter.manifest.gate_spec import DEFAULT_GATE, Action, Gate, GatePolicy, ModelPolicy
from exporter.manifest.load import Loaded, load_layers, load_project
from exporter.manifest.schema import schema
from exporter.manifest.spec import (
    Bound,
    Condition,
    CustomOp,
    Device,
    Expectation,
    Manifest,
    ModelSpec,
    Output,
    Override,
    ParameterNames,
    Project,
    Skip,
    Style,
    Tolerance,
)

__all__ = [
    "DEFAULT_GATE",
    "Action",
    "Axis",
    "Bound",
    "Case",
    "Condition",
    "Constant",
    "Container",
    "CustomOp",
    "Device",
    "Dim",
    "Expectation",
    "Fill",
    "Gate",
    "GatePolicy",
    "Input",
    "InputsFrom",
    "Loaded",
    "Manifest",
    "ModelPolicy",
    "ModelSpec",
    "Output",
    "Override",
    "ParameterNames",
    "Project",
    "Skip",
    "Style",
    "Tolerance",
    "bound_of",
    "explain",
    "load_layers",
    "load_project",
    "parse_at",
    "schema",
]
