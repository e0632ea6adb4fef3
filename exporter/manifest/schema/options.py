"""The table `options`: arguments of `torch.onnx.export` under their own names.

`REMOVED_OPTIONS` lists arguments of older versions of torch, with the advice for each. The versions
are those of torch's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from exporter.core.frozen_model import Items
from exporter.manifest.schema.fields import Line
from exporter.manifest.schema.tables import Table
from exporter.manifest.syntax.message_format import quote

#: torch 1.10 was the last or second to last version with these arguments, and deprecated them.
_REMOVED = "torch removed it after 1.10"
_DYNAMO_EXPORT = (
    "torch removed torch.onnx.dynamo_export, which took it; use `exporter = 'dynamo'` instead"
)

REMOVED_OPTIONS: Mapping[str, str] = {
    "_retain_param_name": f"{_REMOVED}; weights keep their names unless `parameters` changes them",
    "aten": "torch removed it in 1.10; use `operator_export_type = 'ONNX_ATEN'`",
    "diagnostic_options": f"{_DYNAMO_EXPORT}, with `options.report`",
    "enable_onnx_checker": f"{_REMOVED}; every file is checked",
    "example_outputs": f"{_REMOVED}; `outputs` declares the outputs",
    "export_options": _DYNAMO_EXPORT,
    "export_raw_ir": "torch removed it in 1.10; use `operator_export_type = 'ONNX_FALLTHROUGH'`",
    "onnx_registry": f"{_DYNAMO_EXPORT}, with `custom_ops`",
    "op_level_debug": f"{_DYNAMO_EXPORT}; every file is compared with PyTorch",
    "strip_doc_string": f"{_REMOVED}; files have no doc strings, and `verbose` logs the source",
    "use_external_data_format": f"{_REMOVED}; weights above 1 MiB are external data by default",
}


#: Values of enumerations in older versions of torch.
_REMOVED_VALUES = {"RAW": "torch removed it; use 'ONNX_FALLTHROUGH'"}


def _check_enumeration(value: object) -> object:
    """Reject the value of an enumeration with its prefix, and values that torch removed."""
    if isinstance(value, str):
        prefix, _, name = value.rpartition(".")
        if advice := _REMOVED_VALUES.get(name):
            raise ValueError(f"{quote(value)}: {advice}")
        if prefix:
            raise ValueError(f"expected the name alone, got {quote(value)}; write {quote(name)}")
    return value


def _select_form(value: object) -> str | None:
    if isinstance(value, bool):
        return "<bool>"
    return "<list>" if isinstance(value, list | tuple) else None


FunctionModules = Annotated[
    Annotated[bool, Tag("<bool>")]
    | Annotated[Annotated[Items[Line], Field(min_length=1)], Tag("<list>")],
    Discriminator(_select_form, "form", "expected true, false or a list of types of modules"),
]


class OptionsTable(Table):
    """Arguments of `torch.onnx.export`, under their own names."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "args": "use `inputs` and `constants`",
        "artifacts_dir": "the tool chooses the folder of the files",
        "custom_translation_table": "use `custom_ops` with `translation`",
        "dynamic_axes": "use the model's key `dynamic_axes`",
        "dynamic_shapes": "use axis names in `shape`, and `axes`",
        "dynamo": "use `exporter`",
        "f": "the tool chooses the folder of the files",
        "fallback": "use `exporter`; there is no silent fallback",
        "input_names": "use `inputs`",
        "kwargs": "use `inputs` and `constants` with `at`",
        "model": "use `source`",
        "opset_version": "use `opsets`",
        "output_names": "use `outputs`",
        "verify": "the checks verify every file",
        **REMOVED_OPTIONS,
    }

    export_params: bool = True
    """Both exporters: store the weights in the file. If it is `false`, the weights are inputs of
    the file, after the declared ones, in the order and with the names of `state_dict`. The graph is
    then neither folded nor optimized, because both would compute new weights."""
    keep_initializers_as_inputs: bool = False
    """Both exporters: list the weights as inputs, too."""
    verbose: bool = False
    """Both exporters: print more into the cell's log."""
    external_data: bool = True
    """Both exporters: `true` stores the weights in a file next to the ONNX file, `false` stores
    them inside it, up to 2 GB. By default the size decides: from 1 MB, the weights are external
    data."""
    optimize: bool = True
    """dynamo: optimize the graph. Without it: optimize it, and write the file unoptimized with a
    note if the optimizer fails; `true` makes its failure an error of the cell."""
    report: bool = False
    """dynamo: write its own report, `logs/<opset>/report.md` in the model's build folder."""
    profile: bool = False
    """dynamo: profile the export, into the report or the log; needs the package pyinstrument."""
    dump_exported_program: bool = False
    """dynamo: store the captured program, `logs/<opset>/program.pt2`."""
    autograd_inlining: bool = True
    """TorchScript: inline `torch.autograd.Function`."""
    custom_opsets: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Both exporters: the operator domains that the file may have in addition to ONNX's own, with
    their versions. TorchScript writes these versions, dynamo uses those of the translation."""
    do_constant_folding: bool = True
    """TorchScript: compute constant values at export time."""
    export_modules_as_functions: FunctionModules = False
    """TorchScript, from opset 15: keep modules as functions in the file. A list names their types:
    `["torch.nn:LayerNorm", "net.py:Block"]`, in files relative to the manifest. `true` means all
    modules."""
    operator_export_type: Annotated[
        Literal["ONNX", "ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH"],
        BeforeValidator(_check_enumeration),
    ] = "ONNX"
    """TorchScript: the treatment of operators that ONNX lacks."""
    training: Annotated[
        Literal["EVAL", "PRESERVE", "TRAINING"], BeforeValidator(_check_enumeration)
    ] = "EVAL"
    """TorchScript: the mode of the exported graph."""
