"""Whether inputs that are numbers, or that may be left out, can be what they say.

In: the inputs of an entry with its exporter. Out: nothing; problems are reported.
"""

from __future__ import annotations

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.exporters import list_exporters
from exporter.manifest.rules.signature import resolve_dtype
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.message_format import KeyPath
from exporter.manifest.syntax.opsets import format_opsets

_NUMBERS = ("int64", "float32", "float64", "bool")
#: ONNX asks whether an optional value is there since opset 15.
_OPTIONAL_SINCE = 15
_OTHERWISE = (
    "write another entry that `extends` this one, without the input and with "
    "constants = [{ at = …, none = true }]"
)


def check_inputs(model: EffectiveSettings) -> None:
    """Refuses numbers that are tensors, and optional inputs where a file cannot have them."""
    for index, table in enumerate(model.settings.inputs):
        if table.scalar:
            _check_scalar(model, ("inputs", index), table)
        if table.optional and model.has("exporter", "capture", "opsets"):
            _check_optional(model, ("inputs", index))


def _check_scalar(model: EffectiveSettings, place: KeyPath, table: InputTable) -> None:
    if table.shape:
        message = "a number has the shape []; the file takes it as a tensor of that shape"
        model.add_problem((*place, "shape"), message)
    dtype = resolve_dtype(model.settings, table)
    if dtype not in _NUMBERS:
        known = "int64, float32, float64 or bool"
        model.add_problem((*place, "dtype"), f"Python's numbers are {known}, not {dtype}")
    elif dtype == "float32" and model.settings.capture == "script":
        message = "a scripted model's float is float64 in the file"
        model.add_problem((*place, "dtype"), message)
    if table.optional:
        model.add_problem(
            (*place, "optional"), "a number cannot be optional; leave out one of the two"
        )


def _check_optional(model: EffectiveSettings, place: KeyPath) -> None:
    path = (*place, "optional")
    if model.settings.capture != "script":
        exporters = list_exporters(model.settings)
        how = "a trace" if exporters == {"torchscript"} else "dynamo"
        how = "dynamo or a trace" if len(exporters) > 1 else how
        message = (
            f'a file made by {how} has this input always or never; only capture = "script" makes '
            f"optional inputs: {_OTHERWISE}"
        )
        model.add_problem(path, message)
        return
    early = [opset for opset in model.settings.opsets if opset < _OPTIONAL_SINCE]
    if early:
        message = (
            f"ONNX has optional inputs from opset {_OPTIONAL_SINCE} up, not {format_opsets(early)}"
        )
        model.add_problem(path, f"{message}; {_OTHERWISE}")
