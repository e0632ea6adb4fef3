"""Features of torch.onnx that this tool replaces or omits."""

from __future__ import annotations

from tests.features.feature import Elsewhere, Feature, Section


def _refused(name: str, api: str, torch: str, line: str, message: str, note: str) -> Feature:
    """Return a row for an argument that `options` refuses with the replacement."""
    return Feature(
        name=name,
        api=api,
        torch=torch,
        model="names.py:Affine",
        lines=line,
        invalid=message,
        note=note,
    )


ARGUMENTS = (
    _refused(
        "file name",
        "export(model, args, f)",
        "1.0+",
        'options.f = "model.onnx"',
        "the tool chooses the folder of the files",
        "Every file is `build/<model>/<opset>.onnx`, written under a temporary name and renamed.",
    ),
    _refused(
        "folder of reports",
        "export(..., artifacts_dir=...)",
        "2.5+, dynamo",
        'options.artifacts_dir = "."',
        "the tool chooses the folder of the files",
        "`options.report`, `profile` and `dump_exported_program` write into "
        "`build/<model>/logs/<opset>/`.",
    ),
    _refused(
        "run the file after the export",
        "export(..., verify=True)",
        "2.5+, dynamo",
        "options.verify = true",
        "the checks verify every file",
        "They run it on every device of `devices`.",
    ),
    _refused(
        "another exporter if one fails",
        "export(..., fallback=True)",
        "2.5-2.10",
        "options.fallback = true",
        "use `exporter`; there is no silent fallback",
        "The record names the exporter and why it was that one.",
    ),
    _refused(
        "outputs of the example",
        "export(..., example_outputs=...)",
        "1.2-1.10",
        "options.example_outputs = true",
        "`outputs` declares the outputs",
        "PyTorch runs on every input set, to compare the file with it.",
    ),
    _refused(
        "checker on or off",
        "export(..., enable_onnx_checker=...), onnx.checker.check_model",
        "1.5-1.10",
        "options.enable_onnx_checker = false",
        "every file is checked",
        "The check `wellformed`, from the file, with strict shape inference.",
    ),
    _refused(
        "external weights, as in older versions",
        "export(..., use_external_data_format=True)",
        "1.5-1.10",
        "options.use_external_data_format = true",
        "are external data by default",
        "All opsets share one file of them.",
    ),
    _refused(
        "names of parameters kept",
        "export(..., _retain_param_name=True)",
        "1.0-1.10",
        "options._retain_param_name = true",
        "weights keep their names",
        "`parameters` gives others.",
    ),
    _refused(
        "source lines in the file",
        "export(..., strip_doc_string=False)",
        "1.2-1.10",
        "options.strip_doc_string = false",
        "files have no doc strings",
        "They would have the paths of the machine.",
    ),
    _refused(
        "ATen operators in the file, as it was",
        "export(..., aten=True)",
        "1.0-1.9",
        "options.aten = true",
        "use `operator_export_type = 'ONNX_ATEN'`",
        "",
    ),
    _refused(
        "raw graph, as it was",
        "export(..., export_raw_ir=True)",
        "1.0-1.9",
        "options.export_raw_ir = true",
        "use `operator_export_type = 'ONNX_FALLTHROUGH'`",
        "",
    ),
    _refused(
        "raw graph, as a value",
        "export(..., operator_export_type=OperatorExportTypes.RAW)",
        "1.0-1.9",
        'options.operator_export_type = "RAW"',
        "torch removed it; use 'ONNX_FALLTHROUGH'",
        "",
    ),
    _refused(
        "dynamic shapes as an argument",
        "export(..., dynamic_shapes={'x': {0: 'batch'}})",
        "2.5+, dynamo",
        'dynamic_shapes = { x = { 0 = "batch" } }',
        "use axis names in `shape`, and `axes`",
        "The names in `shape` are `dynamic_shapes` for dynamo, `dynamic_axes` for TorchScript.",
    ),
    _refused(
        "an axis that the exporter may fix",
        "export(..., dynamic_shapes={'x': {0: Dim.AUTO}})",
        "2.6+, dynamo",
        'inputs = [{ name = "x", shape = ["Dim.AUTO", 4] }]',
        'write a name for a dynamic axis, such as "batch", or a size',
        "A manifest promises one of the two; `Dim.DYNAMIC` is a name, `Dim.STATIC` a size.",
    ),
    _refused(
        "table of translations",
        "export(..., custom_translation_table={...})",
        "2.6+, dynamo",
        "options.custom_translation_table = {}",
        "use `custom_ops` with `translation`",
        "",
    ),
)

EXPORT = (
    Elsewhere(
        name="export into memory, or into an archive",
        api="export(model, args, io.BytesIO()), ExportTypes.ZIP_ARCHIVE, ExportTypes.DIRECTORY",
        torch="1.0-2.5",
        instead="The checks read the file that ships: `build/<model>/<opset>.onnx`.",
    ),
    Elsewhere(
        name="another capture if one fails",
        api="strategies of export(..., dynamo=True), TORCH_ONNX_ENABLE_DRAFT_EXPORT",
        torch="2.5+",
        instead='Never: `capture = "export"` or `"strict"` is the one that is done.',
    ),
    Elsewhere(
        name="mode while exporting",
        api="select_model_mode_for_export(model, mode)",
        torch="1.5+",
        instead='`mode = "eval"`, `"train"` or `"keep"`; PyTorch is run in the same mode.',
    ),
    Elsewhere(
        name="inputs observed in a running program",
        api="InputObserver",
        torch="2.11+",
        instead="The contract is explicit: names, shapes and axes in `inputs`, values from `fill`"
        " or files. You can write the shapes that an observer infers there.",
    ),
)

DYNAMO = (
    Elsewhere(
        name="first dynamo exporter",
        api="dynamo_export(model, *args, **kwargs), export(..., dynamo=True)",
        torch="2.1-2.8",
        instead='`exporter = "dynamo"`; calls as in `inputs` and `constants`.',
    ),
    Elsewhere(
        name="dynamic shapes of the first dynamo exporter",
        api="ExportOptions(dynamic_shapes=True)",
        torch="2.1-2.8",
        instead="A name in `shape`, for each axis that is to be dynamic.",
    ),
    Elsewhere(
        name="registry of the first dynamo exporter",
        api="ExportOptions(onnx_registry=...), OnnxRegistry.register_op",
        torch="2.1-2.7",
        instead="`custom_ops` with `translation`.",
    ),
    Elsewhere(
        name="export without weights",
        api="enable_fake_mode(), ExportOptions(fake_context=...)",
        torch="2.1-2.7",
        instead="Not supported: numbers cannot be proved without weights. Weights of large models"
        " are external and all opsets share them.",
    ),
    Elsewhere(
        name="diagnostics",
        api="ExportOptions(diagnostic_options=...), DiagnosticOptions, ExportOutput.diagnostics",
        torch="2.1-2.7",
        instead="The record: status, stage, message, the missing operators with the model's "
        "lines, and the log of the cell. `options.report` keeps the report of dynamo.",
    ),
    Elsewhere(
        name="ONNX Runtime as a backend of torch.compile",
        api='torch.compile(backend="onnxrt"), is_onnxrt_backend_supported, ONNXRuntimeOptions',
        torch="2.1-2.8",
        instead="Not here: it makes no file. Files are run by the `devices` of a model.",
    ),
)

PROGRAM = (
    Elsewhere(
        name="ONNXProgram: save",
        api="ONNXProgram.save, ONNXProgram.model_proto, ExportOutput.save",
        torch="2.1+",
        instead="Files are saved always; `options.export_params`, `keep_initializers_as_inputs` "
        "and `external_data` are its arguments.",
    ),
    Elsewhere(
        name="ONNXProgram: optimise",
        api="ONNXProgram.optimize()",
        torch="2.5+",
        instead="`options.optimize`, on unless it is set to false.",
    ),
    Elsewhere(
        name="ONNXProgram: other weights",
        api="ONNXProgram.apply_weights(state_dict)",
        torch="2.5+",
        instead="`weights` of another entry, by `extends`; its file is proved against them.",
    ),
    Elsewhere(
        name="ONNXProgram: run",
        api="ONNXProgram(...), call_reference, initialize_inference_session, release",
        torch="2.5+",
        instead='`devices = ["cpu", "reference"]`: ONNX Runtime and onnx.reference.',
    ),
    Elsewhere(
        name="ONNXProgram: values inside",
        api="ONNXProgram.compute_values(names)",
        torch="2.7+",
        instead="A wrong file's record names the first node that differs; `exporter repro CELL` "
        "writes a script to look further with.",
    ),
    Elsewhere(
        name="ONNXProgram: inputs and outputs as the file takes them",
        api="ONNXProgram.adapt_torch_inputs_to_onnx, adapt_torch_outputs_to_onnx",
        torch="2.1-2.5",
        instead="`at` sets the position of each value. `test_data_set_<n>/` contains them as the "
        "file takes them.",
    ),
)

VERIFICATION = (
    Elsewhere(
        name="find the node that is wrong",
        api="verification.find_mismatch, GraphInfo, verify_aten_graph",
        torch="2.0-2.8",
        instead="Done for every cell that is red at parity: the culprit, and the first node that "
        "differs with the model's line.",
    ),
    Elsewhere(
        name="compare with the captured program",
        api="verification.verify_onnx_program, VerificationInfo",
        torch="2.7+",
        instead="The checks compare with PyTorch itself, not with the capture, which may be wrong.",
    ),
    Elsewhere(
        name="assert in a test",
        api="testing.assert_onnx_program",
        torch="2.10+",
        instead="`exporter gate` in CI fails if a cell turned red or is missing.",
    ),
    Elsewhere(
        name="options of a comparison",
        api="verification.VerificationOptions, OnnxBackend",
        torch="2.0-2.8",
        instead="`tolerance`, `cases`, `devices`.",
    ),
    Elsewhere(
        name="traces that differ by input",
        api="verification.check_export_model_diff",
        torch="2.0-2.8",
        instead="Always: the checks `values`, `axes` and `cases` run other inputs.",
    ),
)

AROUND = (
    Elsewhere(
        name="graph as text",
        api="export_to_pretty_string, onnx.helper.printable_graph, verbose=True",
        torch="1.0-2.5",
        instead="`onnx.printer.to_text(onnx.load(FILE))`; Netron shows a picture.",
    ),
    Elsewhere(
        name="metadata of nodes",
        api="pkg.torch.onnx.stack_trace, name_scopes, fx_node",
        torch="2.5+",
        instead="Left out of the file: it has the paths of the machine. Messages name the model's "
        "lines.",
    ),
    Elsewhere(
        name="TorchVision's models",
        api='"TorchVision support"',
        torch="1.4-1.9",
        instead='`source = "torchvision.models:resnet18"`, with `init` for its arguments: as for '
        "any package that is installed.",
    ),
    Elsewhere(
        name="log on or off",
        api="enable_log(), disable_log(), utils.setup_onnx_logging",
        torch="1.10-2.5",
        instead="Each opset has its own log, `build/<model>/logs/<opset>.log`; `options.verbose` "
        "makes it longer.",
    ),
    Elsewhere(
        name="symbolic functions",
        api="symbolic_helper.parse_args, JitScalarType, GraphContext.op, onnxscript_op",
        torch="1.0+",
        instead="As they are, in the file that `symbolic` of `custom_ops` names.",
    ),
    Elsewhere(
        name="end of a registration",
        api="unregister_custom_op_symbolic",
        torch="1.7+",
        instead="Each registration ends with its export.",
    ),
    Elsewhere(
        name="operators that cannot be converted",
        api="utils.unconvertible_ops",
        torch="1.10+",
        instead="A red cell lists them all; reports/OPERATORS.md has those of ATen.",
    ),
    Elsewhere(
        name="exceptions",
        api="errors.UnsupportedOperatorError, SymbolicValueError, OnnxExporterError, CheckerError",
        torch="1.10+",
        instead="A failing model is a record with the stage, the message and the log, never an "
        "exception. Other models and opsets go on.",
    ),
    Elsewhere(
        name="Caffe2",
        api="caffe2.python.onnx.backend.prepare",
        torch="1.0-2.3",
        instead='A device with `runtime = "backend"` runs every implementation of the ONNX '
        "backend API.",
    ),
    Elsewhere(
        name="Apex's hook for half precision",
        api="utils.disable_apex_o2_state_dict_hook",
        torch="1.10+",
        instead='`precision = "float16"` casts model and inputs.',
    ),
    Elsewhere(
        name="memory of an export",
        api='"Understanding TorchDynamo-based ONNX Exporter Memory Usage"',
        torch="2.6+",
        instead="One process for each model; `memory` limits it.",
    ),
)

SECTION = Section(
    name="Elsewhere",
    text="Features that are deliberately no keys of a manifest, and their replacements.",
    rows=(*ARGUMENTS, *EXPORT, *DYNAMO, *PROGRAM, *VERIFICATION, *AROUND),
)
