"""The command `repro`: a folder that shows the failure of a cell without this tool."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath

import exporter
from exporter.cache.states import ALL_FILES, FOLDER, LISTING, MISSING
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT, PROJECT_LIMIT, read_regular_file, write_text
from exporter.core.frozen_model import Plain
from exporter.core.text import join_lines
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import Axis, Bound, Device, Dim, Input, ModelSpec, select_bound
from exporter.manifest.resolved.model import ExporterName
from exporter.manifest.rules.sources import EXPORTER_OPTIONS, WEIGHTS_AS_INPUTS
from exporter.manifest.syntax.call_paths import Step, assemble_call, is_positional_call
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import OutputLimit, Record, Route, Stage
from exporter.report.pages.templates import render, render_script
from exporter.report.rows.failures import find_repro_obstacle

#: The folder with the project's files, at the same relative paths as in the project.
SOURCES = "source"
#: The tensors for the export, and those that show the failure.
DECLARED, SHOWING = "declared", "showing"
#: It needs numpy only; this process does not import it.
_COMPARATORS = Path(exporter.__file__).parent / "checks" / "comparison" / "comparators.py"
#: All names in a reproducer's folder.
_NAMES = {
    *(SOURCES, DECLARED, SHOWING, "passes"),
    *("repro.py", "README.md", "comparators.py", "weights.json"),
}
_ANONYMIZE = "exporter.tools.child.anonymizer:anonymize"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedCell:
    """The input of a reproducer."""

    spec: ModelSpec
    record: Record
    device: Device
    tools: dict[str, str]
    """Versions by name."""
    root: Path
    """The project's root."""
    built: JobFolder
    """The model's folder in the build folder."""
    is_anonymous: bool = False
    """Whether the script sets other weights, of `weights.json`."""


def write_reproducer(cell: ReproducedCell, folder: Path) -> None:
    """Write the folder, in place of an older reproducer.

    Raises:
        ExporterError: ENVIRONMENT if `folder` contains other files or the model's tensors are
            missing; NOTHING_SELECTED if the failure needs this tool.
    """
    if reason := _find_obstacle(cell):
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{cell.record.cell}: {reason}")
    spec = _resolve_call(cell)
    try:
        reference = Reference.read(read_regular_file(cell.built.reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        message = f"{cell.built.reference}: cannot be read; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error
    name = cell.record.blame.sample if cell.record.blame else ""
    failing = [item for item in reference.samples if item.name == name and not item.error]
    sample = (failing or list(reference.samples))[0]
    passes = _find_passes(cell)
    if cell.is_anonymous:
        spec = spec.model_copy(update={"weights": ""})
    else:
        _prepare_folder(folder)
        for target, source in ((DECLARED, reference.samples[0]), (SHOWING, sample)):
            _copy_tensors(cell.built.sample(source.index), folder / target)
    _copy_sources(cell, folder)
    for kind, path in passes.items():
        shutil.copytree(path, folder / "passes" / kind)
    script = render_repro_script(
        spec, cell.record, cell.device, sample, reference, is_anonymous=cell.is_anonymous
    )
    write_text(folder / "repro.py", script)
    if any(output.compare for output in spec.outputs):
        write_text(folder / _COMPARATORS.name, _COMPARATORS.read_text(encoding="utf-8"))
    root = None if cell.is_anonymous else cell.root
    readme = render_readme(cell.spec, cell.record, cell.tools, sample, root, cell.device)
    write_text(folder / "README.md", readme)


def write_anonymous_reproducer(
    cell: ReproducedCell, folder: Path, environment: Mapping[str, str], *, hashes_names: bool
) -> bool:
    """Write the folder with other weights and inputs; return whether the failure still occurs.

    Only Python files are copied. The weights and the inputs are seeded numbers with rounded
    statistics of the original ones.

    Args:
        cell: The input of the reproducer.
        folder: The folder of the reproducer.
        environment: The environment variables of the process that builds the model.
        hashes_names: Also hash the names of modules and classes, and remove comments.

    Raises:
        ExporterError: As `write_reproducer`; ENVIRONMENT if the script fails in another way.
    """
    spec, record = cell.spec, cell.record
    if spec.is_saved_program or spec.is_saved_script:
        message = f"{record.cell}: {spec.source} contains the weights, so no other ones can be set"
        raise ExporterError(ExitCode.NOTHING_SELECTED, f"{message}; name a class as the source")
    if record.broken_pass:
        message = f"{record.cell}: the files around a pass contain the weights; omit the option"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    with tempfile.TemporaryDirectory() as scratch:
        original = Path(scratch).resolve() / "original"
        write_reproducer(cell, original)
        _prepare_folder(folder)
        sources = tuple(each for each in record.sources if each.file.endswith(".py"))
        hidden = {"message": "", "detail": "", "sources": sources}
        public = replace(cell, record=record.model_copy(update=hidden), is_anonymous=True)
        write_reproducer(public, folder)
        arguments = {
            "original": original,
            "folder": folder.absolute(),
            "sources": SOURCES,
            "samples": [DECLARED, SHOWING],
            "names": [spec.id] if hashes_names else None,
        }
        try:
            code, output = call_in_child(
                _ANONYMIZE, arguments, tuple[int, str], environment, seconds=spec.timeout
            )
        except ChildFailure as failure:
            message = f"{record.cell}: the model cannot be built without the project: {failure}"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from failure
    if code not in (0, 1):
        message = f"{folder}: the script needs the weights, data or names: {join_lines(output)}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    return code == 1


def _find_obstacle(cell: ReproducedCell) -> str:
    """Return the reason why no script can show the failure, "" if one can."""
    if reason := find_repro_obstacle(cell.record):
        return reason
    if cell.device.runtime not in RUNTIMES:
        return f"a script cannot use the plugin runtime '{cell.device.runtime}'"
    return ""


def _resolve_call(cell: ReproducedCell) -> ModelSpec:
    """Return the contract with an explicit call that a script can create."""
    spec = cell.spec
    if spec.inputs_from is not None:
        path = cell.built.contract
        try:
            resolved = ModelSpec.model_validate_json(read_regular_file(path, CELL_LIMIT))
        except (OSError, ValueError) as error:
            message = f"{path}: cannot be read; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
        fields = ("inputs", "constants", "containers", "axes")
        update = {name: getattr(resolved, name) for name in fields}
        spec = spec.model_copy(update={**update, "inputs_from": None})
    for each in spec.containers:
        if each.is_object and not split_reference(each.type)[0]:
            message = (
                f"{cell.record.cell}: a script cannot import {each.type}; "
                "move it to a path that is a module name"
            )
            raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return spec


def _prepare_folder(folder: Path) -> None:
    """Create an empty folder; remove an older reproducer, but no other files."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{folder}: is not a folder; name another one")
    if folder.exists() and any(folder.iterdir()):
        names = {path.name for path in folder.iterdir()}
        if "repro.py" not in names or names - _NAMES:
            message = f"{folder}: contains other files; name another folder"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _copy_sources(cell: ReproducedCell, folder: Path) -> None:
    for source in cell.record.sources:
        path = PurePosixPath(source.file)
        if path.name in (LISTING, ALL_FILES) or source.state in (FOLDER, MISSING):
            continue  # only files have content
        # A record is untrusted: its paths must not leave the project.
        if path.is_absolute() or ".." in path.parts:
            message = f"{source.file}: is outside the project; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        target = folder / SOURCES / source.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cell.root / source.file, target)


def _find_passes(cell: ReproducedCell) -> dict[str, Path]:
    """Return the folders with the files before and after the broken pass, if there is one."""
    source, last = cell.built.passes(cell.record.cell.opset), cell.record.broken_pass
    folders = {"before": source / str(last - 1), "after": source / str(last)} if last else {}
    for folder in folders.values():
        if not folder.is_dir():
            message = f"{folder}: is missing; export the model again"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
    return folders


def _copy_tensors(sample: Path, target: Path) -> None:
    """Copy inputs and float64 outputs; the script computes PyTorch's own outputs."""
    target.mkdir()
    for pattern in ("input_*.pb", "float64_*.pb"):
        for path in sorted(sample.glob(pattern)):
            shutil.copyfile(path, target / path.name)
    if not any(target.iterdir()):
        message = f"{sample}: contains no inputs; export the model again"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


#: The runtimes that the script's template supports.
RUNTIMES = ("onnxruntime", "openvino", "backend", "reference")


def get_runtime_values(device: Device) -> dict[str, object]:
    """Return the values for the runtime of the cell."""
    module, _, attribute = device.module.partition(":")
    # As in the cell's session, CUDA computes in the precision of the file.
    providers = [
        (name, {"use_tf32": "0"}) if name == "CUDAExecutionProvider" else name
        for name in device.providers or ("CPUExecutionProvider",)
    ]
    return {
        "package": get_package(device),
        "providers": repr(providers),
        "runs_on": repr(device.device or "CPU"),
        "backend_module": repr(module),
        "backend_class": repr(attribute) if attribute else "",
        **{f"by_{runtime}": device.runtime == runtime for runtime in RUNTIMES},
    }


def get_package(device: Device) -> str:
    """Return the package of the runtime, as pip or an import names it."""
    match device.runtime:
        case "backend":
            return device.module.partition(":")[0].partition(".")[0]
        case "openvino":
            return "openvino"
        case _:
            return "onnxruntime"


def list_custom_ops(spec: ModelSpec, opset: int, exporter: ExporterName) -> dict[str, object]:
    """Return references to the functions of custom operators, by their use in the script.

    Returns:
        An empty dict if the cell has no custom operators.
    """
    if not spec.custom_ops:
        return {}
    references: dict[str, dict[str, str]] = {"symbolic": {}, "onnxscript": {}, "translation": {}}
    uses = ("translation",) if exporter == "dynamo" else ("symbolic", "onnxscript")
    # If an operator has several entries, the highest opset up to this one is valid.
    for op in sorted(spec.custom_ops, key=lambda op: op.opset):
        for use in uses:
            if op.opset <= opset and (reference := getattr(op, use)):
                for others in references.values():
                    others.pop(op.name, None)
                references[use][op.name] = reference

    def list_distinct(texts: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(text for text in texts if text))

    return {
        "symbolics": references["symbolic"],
        "functions": references["onnxscript"],
        "translations": references["translation"],
        "libraries": list_distinct(op.ort_library or "" for op in spec.custom_ops),
        "operators": list_distinct(op.reference or "" for op in spec.custom_ops),
    }


_MODES = {"eval": "EVAL", "train": "TRAINING", "keep": "PRESERVE"}
_ENUMS = {"training": "TrainingMode", "operator_export_type": "OperatorExportTypes"}
#: Options for writing and checking the artifact, which are no arguments in the script.
_OMITTED_OPTIONS: Mapping[ExporterName, tuple[str, ...]] = {
    "dynamo": ("external_data", "custom_opsets"),
    "torchscript": ("external_data",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """Expressions for one call."""

    args: str
    kwargs: str
    names: tuple[str, ...]
    """The inputs in the order of the call."""


def format_call(spec: ModelSpec) -> CallText:
    """Return the call, with tensors from a table `inputs`."""
    values = [(item.at, _format_argument(item)) for item in spec.inputs]
    values += [(fixed.at, repr(fixed.value)) for fixed in spec.constants]
    return _assemble(spec, values, {each.at: each.type for each in spec.containers})


def format_hints(spec: ModelSpec) -> CallText:
    """Return the call with the dynamic dimensions in place of each tensor."""
    values = [(item.at, format_hint(item, spec)) for item in spec.inputs]
    values += [(fixed.at, "None") for fixed in spec.constants]
    types = {each.at: "" if each.is_object else each.type for each in spec.containers}
    return _assemble(spec, values, types)


def format_flat_call(spec: ModelSpec, format_input: Callable[[Input], str]) -> str:
    """Return a tuple with one expression for each input, in the order of the file."""
    return _format_tuple([format_input(item) for item in spec.inputs])


def format_flat_argument(item: Input) -> str:
    """Return an input of a flat call, in which dynamo accepts integers but no other numbers."""
    if is_symbolic_integer(item):
        return _format_argument(item)
    return f"inputs[{item.name!r}].clone()"


def is_symbolic_integer(item: Input) -> bool:
    """Return True if torch.export treats the input as a symbolic integer."""
    return item.scalar and item.dtype == "int64"


def split_reference(source: str) -> tuple[str, str]:
    """Return the module and the attribute of a reference; "" for a path that is no module."""
    module, _, attribute = source.rpartition(":")
    if not module.endswith(".py"):
        return module, attribute
    parts = PurePosixPath(module).with_suffix("").parts
    return (".".join(parts) if all(part.isidentifier() for part in parts) else ""), attribute


def list_dynamic_axes(spec: ModelSpec) -> dict[str, dict[int, str]]:
    """Return `dynamic_axes` for `torch.onnx.export` with TorchScript."""
    axes = {
        name: {index: dim for index, dim in enumerate(shape) if isinstance(dim, str)}
        for name, shape in [(item.name, item.shape) for item in (*spec.inputs, *spec.outputs)]
    }
    return {name: dims for name, dims in axes.items() if dims}


def format_options(spec: ModelSpec, route: Route) -> dict[str, str]:
    """Return the other arguments of `torch.onnx.export` as expressions by name."""
    exporter = route.torch_exporter
    names = EXPORTER_OPTIONS[exporter] - set(_OMITTED_OPTIONS[exporter])
    options: dict[str, Plain] = (
        {"verbose": False} if exporter == "dynamo" else {"training": _MODES[spec.mode]}
    )
    options |= {name: value for name, value in spec.options.items() if name in names}
    if not route.optimize:
        options["optimize"] = False
    if spec.weights_are_inputs:  # the script's file contains the weights and computes the same
        options |= WEIGHTS_AS_INPUTS[exporter] | {"export_params": True}
    return {
        name: f"torch.onnx.{_ENUMS[name]}.{value}" if name in _ENUMS else _format_option(value)
        for name, value in options.items()
    }


def _format_option(value: Plain) -> str:
    """Return a value; a list contains types of modules."""
    if isinstance(value, list):
        return "{" + ", ".join(_format_reference(str(item)) for item in value) + "}"
    return repr(value)


def _format_reference(reference: str) -> str:
    module, attribute = split_reference(reference)
    return f"getattr(importlib.import_module({module!r}), {attribute!r})"


def format_hint(item: Input, spec: ModelSpec) -> str:
    """Return the dynamic dimensions of one input."""
    if is_symbolic_integer(item):
        return "Dim.DYNAMIC"
    numbers = {axis.name: number for number, axis in enumerate(spec.axes)}
    hints = (
        f"{index}: {_format_dim(spec.find_axis(dim), numbers[dim])}"
        for index, dim in enumerate(item.shape)
        if isinstance(dim, str)
    )
    return "{" + ", ".join(hints) + "}"


def _assemble(
    spec: ModelSpec, values: Sequence[tuple[str, str]], types: Mapping[str, str]
) -> CallText:
    args, kwargs = assemble_call(values, types, _format_container)
    inputs: list[tuple[str, tuple[str, ...]]] = [(item.at, (item.name,)) for item in spec.inputs]
    names = assemble_call(
        inputs,
        {},
        lambda _, items: tuple(
            chain.from_iterable(items.values() if isinstance(items, dict) else items)
        ),
    )
    return CallText(args=args, kwargs=kwargs, names=names[0] + names[1])


def _format_argument(item: Input) -> str:
    tensor = f"inputs[{item.name!r}]"
    if item.scalar:
        return f"as_number({tensor})"
    if item.optional:
        return f"(None if {item.name!r} not in inputs else {tensor}.clone())"
    return f"{tensor}.clone()"


def _format_container(type: str, items: list[str] | dict[Step, str]) -> str:
    """Return a container; by default, indices give a tuple and keys give a dict."""
    function = ""
    if ":" in type:
        function = _format_reference(type)
    if isinstance(items, dict):
        text = "{" + ", ".join(f"{key!r}: {value}" for key, value in items.items()) + "}"
        return f"{function}(**{text})" if function else text
    if function:
        return f"{function}({', '.join(items)})"
    return f"[{', '.join(items)}]" if type == "list" else _format_tuple(items)


def _format_tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _format_dim(axis: Axis, number: int) -> str:
    if axis.factors is not None:
        least, most = axis.factors
        return f"{axis.multiple_of} * Dim('_factor{number}', min={least}, max={most})"
    if axis.rule:
        return "Dim.DYNAMIC"
    limits = {"min": axis.min if axis.min > 1 else None, "max": axis.max}
    text = ", ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
    return f"Dim.DYNAMIC({text})" if text else "Dim.DYNAMIC"


#: The limit if the record has none: multiples of PyTorch's noise, or of the last place.
_NOISE_FACTOR, _LAST_PLACES = 16.0, 64.0
#: The step of the script at which a failure occurs, by the stage of the record.
_STEPS = {
    Stage.CAPTURE: "export",
    Stage.CONVERT: "export",
    Stage.STRUCTURE: "file",
    Stage.LOAD: "run",
    Stage.PARITY: "run",
}
#: The domains of ONNX's own operators.
_DOMAINS = (
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview",
    "ai.onnx.preview.training",
)
_CPU = Device(name=DeviceName("cpu"), runtime="onnxruntime")
#: The methods of a module that cast its floating-point weights.
_CASTS = {"float32": "float", "float16": "half", "bfloat16": "bfloat16", "float64": "double"}


def render_repro_script(
    spec: ModelSpec,
    record: Record,
    device: Device,
    sample: Sample,
    reference: Reference,
    *,
    is_anonymous: bool = False,
) -> str:
    """Return the script; see `templates/repro.py.jinja`."""
    route = record.route or Route(exporter="dynamo", capture="export", reason="")
    by_dynamo = route.exporter == "dynamo"
    traces = not by_dynamo and route.capture != "script"
    has_numbers = any(item.scalar for item in spec.inputs)
    others = bool(spec.constants or spec.containers) or has_numbers
    is_plain = is_positional_call((item.at for item in spec.inputs), others=others)
    wraps = (traces and not is_plain) or _needs_wrapper(spec, reference, by_dynamo=by_dynamo)
    call, hints = format_call(spec), format_hints(spec)
    values = _collect_values(spec, record, sample, reference, route)
    values["call_names"] = [item.name for item in spec.inputs] if wraps else list(call.names)
    custom_ops = list_custom_ops(spec, record.cell.opset, route.torch_exporter)
    return render_script(
        "repro.py",
        **{name: repr(value) for name, value in (values | custom_ops).items()},
        is_anonymous=is_anonymous,
        args=call.args,
        kwargs=call.kwargs,
        flat_args=format_flat_call(
            spec,
            format_flat_argument if by_dynamo else lambda item: f"inputs[{item.name!r}].clone()",
        ),
        hint_args=(
            format_flat_call(spec, lambda item: format_hint(item, spec)) if wraps else hints.args
        ),
        hint_kwargs="{}" if wraps else hints.kwargs,
        options=[f"{name}={text}," for name, text in format_options(spec, route).items()],
        mode=spec.mode,
        has_custom_ops=bool(custom_ops),
        cast=_CASTS[spec.precision] if spec.precision else "",
        **_locate_source(spec),
        wraps=wraps,
        may_wrap=traces and is_plain and not wraps,
        has_numbers=has_numbers,
        takes_apart=reference.returns_objects,
        gradients=route.state == "plain",
        keeps_fused_path=spec.export_state == "plain",
        is_dynamic=any(
            is_symbolic_integer(item) or any(isinstance(dim, str) for dim in item.shape)
            for item in spec.inputs
        ),
        broken_pass=record.broken_pass,
        has_comparators=bool(_list_comparators(spec)),
        has_masks=any(item.masked_by for item in spec.outputs),
        checks_names=record.check == "signature",
        is_scripted=route.capture == "script",
        by_dynamo=by_dynamo,
        captures_first=route.capture in ("strict", "draft") or record.stage is Stage.CAPTURE,
        export_function="draft_export" if route.capture == "draft" else "export",
        **get_runtime_values(device),
    )


def _collect_values(
    spec: ModelSpec, record: Record, sample: Sample, reference: Reference, route: Route
) -> dict[str, object]:
    """Return the values of the script that appear as Python literals."""
    manifest_folder = f"source/{PurePosixPath(spec.manifest).parent}"
    return {
        "cell": str(record.cell),
        "seen": join_lines(record.message) or record.status.value,
        "manifest_folder": manifest_folder,
        "folders": ["source", manifest_folder],
        "init": spec.init,
        "seed": spec.seed,
        "input_names": [item.name for item in spec.inputs],
        "output_names": [item.name for item in spec.outputs],
        "step": _STEPS.get(record.stage, "") if record.stage else "",
        "complex_inputs": [item.name for item in spec.inputs if item.is_complex],
        "optional_inputs": [item.name for item in spec.inputs if item.optional],
        "lists": [i for i, item in enumerate(spec.outputs) if item.kind == "sequence"],
        "input_types": [(item.file_dtype, list(item.file_shape)) for item in spec.inputs],
        "output_types": [(item.file_dtype, list(item.file_shape)) for item in spec.outputs],
        "domains": _list_domains(spec),
        "opset": record.cell.opset,
        "sample": sample.name,
        "dynamic_axes": list_dynamic_axes(spec),
        "limits": _list_limits(spec, record, reference),
        "strict": route.capture == "strict",
        "masks": _list_masks(spec),
        "comparators": _list_comparators(spec),
    }


def render_readme(
    spec: ModelSpec,
    record: Record,
    tools: dict[str, str],
    sample: Sample,
    root: Path | None,
    device: Device = _CPU,
) -> str:
    """Return the README with the failure, the versions and, unless `root` is None, the entry."""
    return render(
        "repro.md",
        None,
        record=record,
        tools=tools,
        sample=sample.name,
        entry=_read_entry(spec, root) if root else "",
        is_anonymous=root is None,
        spec=spec,
        package=get_package(device),
    )


def _needs_wrapper(spec: ModelSpec, reference: Reference, *, by_dynamo: bool) -> bool:
    """Return True if a wrapper must create or unpack objects that no exporter supports."""
    has_objects = any(each.is_object for each in spec.containers)
    has_numbers = any(item.scalar and not is_symbolic_integer(item) for item in spec.inputs)
    return reference.returns_objects or (by_dynamo and (has_objects or has_numbers))


def _list_masks(spec: ModelSpec) -> dict[str, tuple[str, int, list[Dim], list[Dim]]]:
    """Return the mask of each output that has one; see `checks/comparison/masked_positions.py`."""
    inputs = {item.name: item for item in spec.inputs}
    return {
        output.name: (
            item.name,
            0 if item.fill.kind == "padding" else 1,
            list(item.shape),
            list(output.shape),
        )
        for output in spec.outputs
        if (item := inputs.get(output.masked_by)) is not None
    }


def _list_comparators(spec: ModelSpec) -> dict[str, dict[str, object]]:
    """Return the comparator of each output that has one."""
    return {
        output.name: output.compare.model_dump(exclude_defaults=True)
        for output in spec.outputs
        if output.compare
    }


def _list_domains(spec: ModelSpec) -> list[str]:
    """Return the domains that the file may use."""
    option = spec.options.get("custom_opsets")
    declared = option if isinstance(option, Mapping) else {}
    custom = (op.name.partition("::")[0] for op in spec.custom_ops)
    return [*_DOMAINS, *declared, *custom]


def _locate_source(spec: ModelSpec) -> dict[str, object]:
    """Return the values of the source and the weights, which are copied to the folder."""
    folder = PurePosixPath(spec.manifest).parent
    module, attribute, is_file = "", "", False
    if not (spec.is_saved_program or spec.is_saved_script):
        module, attribute = split_reference(spec.source)
        if not module:
            is_file = True
            module = f"source/{folder / spec.source.rpartition(':')[0]}"
    are_tensors = spec.weights.endswith(".safetensors")
    return {
        "module": repr(module),
        "attribute": repr(attribute),
        "is_file": is_file,
        "saved": repr(posixpath.normpath(f"source/{folder / spec.source}")),
        "saved_program": spec.is_saved_program,
        "saved_script": spec.is_saved_script,
        "weights": repr(posixpath.normpath(f"source/{folder / spec.weights}")),
        "weights_tensors": are_tensors,
        "weights_pickle": bool(spec.weights) and not are_tensors,
    }


def _list_limits(spec: ModelSpec, record: Record, reference: Reference) -> list[dict[str, object]]:
    """Return the limit of each output: of the check, of the manifest, or of PyTorch's noise."""
    allowed = record.blame.allowed if record.blame else ()
    if allowed:
        return [_format_limit(item) for item in allowed]
    return [
        _format_declared_limit(select_bound(spec, output, record.cell.device), noise, step)
        for output, noise, step in zip_longest(spec.outputs, reference.noise, reference.steps)
    ]


def _format_declared_limit(
    bound: Bound, noise: float | None, step: float | None
) -> dict[str, object]:
    if bound.steps is not None:
        return _format_limit(OutputLimit(atol=bound.steps * (step or 0.0), rtol=1e-6))
    if bound.atol is not None or bound.rtol is not None:
        limit = OutputLimit(atol=bound.atol or 0.0, rtol=bound.rtol or 0.0)
        return _format_limit(limit)
    return {"noises": None if noise is None else _NOISE_FACTOR * noise, "places": _LAST_PLACES}


def _format_limit(allowed: OutputLimit) -> dict[str, object]:
    if allowed.items:
        return {"items": [_format_limit(item) for item in allowed.items]}
    if allowed.atol is None:
        return {"atol": 0.0, "rtol": 0.0, "exact": False, "scale": None}
    return {
        "atol": allowed.atol,
        "rtol": allowed.rtol or 0.0,
        "exact": allowed.exact,
        "scale": allowed.scale,
    }


def _read_entry(spec: ModelSpec, root: Path) -> str:
    """Return the model's part of the manifest, up to the header of another table."""
    try:
        lines = (root / spec.manifest).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    entry = lines[spec.line - 1 : spec.line]
    for line in lines[spec.line :]:
        if line.startswith("[") and not line.lstrip("[").startswith(f"models.{spec.id}."):
            break
        entry.append(line)
    return "\n".join(entry).rstrip()
