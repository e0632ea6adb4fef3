"""TOML text in, a frozen, typed `Manifest` out, or every problem with its file and line."""

from exporter.manifest.calls import parse_at
from exporter.manifest.explain import explain
from exporter.manifest.load import load_layers, load_project
from exporter.manifest.schema import schema
from exporter.manifest.spec import (
    Axis,
    Bound,
    Case,
    Condition,
    Constant,
    CustomOp,
    Device,
    Dim,
    Expectation,
    Fill,
    Input,
    Manifest,
    ModelSpec,
    Output,
    Override,
    ParameterNames,
    Project,
    Skip,
    Tolerance,
)

__all__ = [
    "Axis",
    "Bound",
    "Case",
    "Condition",
    "Constant",
    "CustomOp",
    "Device",
    "Dim",
    "Expectation",
    "Fill",
    "Input",
    "Manifest",
    "ModelSpec",
    "Output",
    "Override",
    "ParameterNames",
    "Project",
    "Skip",
    "Tolerance",
    "explain",
    "load_layers",
    "load_project",
    "parse_at",
    "schema",
]
