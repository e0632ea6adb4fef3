"""Read the manifests of a project."""

from exporter.manifest.cell_settings import explain_cell
from exporter.manifest.loader import (
    LoadedProject,
    load_devices,
    load_layers,
    load_project,
    load_settings,
)
from exporter.manifest.resolved.call import (
    Axis,
    Case,
    Constant,
    Container,
    Dim,
    Fill,
    Input,
    InputsFrom,
)
from exporter.manifest.resolved.device import Device, RuntimeEnvironment, Toolchain
from exporter.manifest.resolved.gate import (
    DEFAULT_GATE,
    Action,
    Gate,
    GatePolicy,
    ModelPolicy,
)
from exporter.manifest.resolved.model import (
    Bound,
    Comparator,
    Condition,
    CustomOp,
    Expectation,
    ModelSpec,
    Output,
    Override,
    ParameterNames,
    Skip,
    Style,
    Tolerance,
    select_bound,
)
from exporter.manifest.resolved.project import EngineSettings, Manifest, Project
from exporter.manifest.schema.documents import build_schema
from exporter.manifest.syntax.call_paths import parse_call_path

__all__ = [
    "DEFAULT_GATE",
    "Action",
    "Axis",
    "Bound",
    "Case",
    "Comparator",
    "Condition",
    "Constant",
    "Container",
    "CustomOp",
    "Device",
    "Dim",
    "EngineSettings",
    "Expectation",
    "Fill",
    "Gate",
    "GatePolicy",
    "Input",
    "InputsFrom",
    "LoadedProject",
    "Manifest",
    "ModelPolicy",
    "ModelSpec",
    "Output",
    "Override",
    "ParameterNames",
    "Project",
    "RuntimeEnvironment",
    "Skip",
    "Style",
    "Tolerance",
    "Toolchain",
    "build_schema",
    "explain_cell",
    "load_devices",
    "load_layers",
    "load_project",
    "load_settings",
    "parse_call_path",
    "select_bound",
]
