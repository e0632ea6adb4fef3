"""Arguments that older versions of torch.onnx.export took, and what to write instead today.

In: nothing. Out: a message for each. The versions are those of torch's own documentation.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Deprecated in 1.10, which had them last or next to last.
_GONE = "torch dropped it after 1.10"
_AFTER_DYNAMO_EXPORT = (
    "torch dropped torch.onnx.dynamo_export, which took it; say it with `exporter = 'dynamo'`"
)

REMOVED_OPTIONS: Mapping[str, str] = {
    "_retain_param_name": f"{_GONE}: weights keep their names; `parameters` gives others",
    "aten": "torch dropped it in 1.10: write `operator_export_type = 'ONNX_ATEN'`",
    "diagnostic_options": _AFTER_DYNAMO_EXPORT + " and `options.report`",
    "enable_onnx_checker": f"{_GONE}: every file is checked",
    "example_outputs": f"{_GONE}: the outputs are those that `outputs` declares",
    "export_options": _AFTER_DYNAMO_EXPORT,
    "export_raw_ir": "torch dropped it in 1.10: write `operator_export_type = 'ONNX_FALLTHROUGH'`",
    "onnx_registry": _AFTER_DYNAMO_EXPORT + " and `custom_ops`",
    "op_level_debug": _AFTER_DYNAMO_EXPORT + "; every file is held against PyTorch",
    "strip_doc_string": f"{_GONE}: files have none; `verbose` puts the source into the log",
    "use_external_data_format": f"{_GONE}: weights beyond 1 MiB lie beside the file anyway",
}
