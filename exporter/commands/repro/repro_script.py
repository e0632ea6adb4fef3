"""The script and the README of a reproducer."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath

from exporter.core.device_name import DeviceName
from exporter.core.files import TEXT_LIMIT, read_regular_file
from exporter.core.frozen_model import Plain
from exporter.core.text import join_lines
from exporter.jobs import Reference, Sample
from exporter.manifest import Axis, Device, Dim, Input, ModelSpec, select_bound
from exporter.manifest.rules.sources import list_torch_options
from exporter.manifest.syntax.values import (
    ExporterName,
    Step,
    assemble_call,
    is_positional_call,
    join_words,
)
from exporter.records.record import OutputLimit, Record, Route, Stage
from exporter.report.pages.templates import render, render_script

_ENUMS = {"training": "TrainingMode", "operator_export_type": "OperatorExportTypes"}


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


def format_flat_argument(item: Input, *, by_dynamo: bool) -> str:
    """Return an input of a flat call, in which dynamo accepts integers but no other numbers."""
    if by_dynamo and is_symbolic_integer(item):
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


def format_options(spec: ModelSpec, route: Route) -> dict[str, str]:
    """Return the other arguments of `torch.onnx.export` as expressions by name."""
    options = list_torch_options(spec, route.torch_exporter)
    if not route.optimize:
        options["optimize"] = False
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


def get_runtime_values(device: Device) -> dict[str, object]:
    module, _, attribute = device.module.partition(":")
    # As in the cell's session, CUDA computes in the precision of the file.
    options = device.provider_settings
    providers = [
        (name, options[name]) if options.get(name) else name
        for name in device.providers or ("CPUExecutionProvider",)
    ]
    return {
        "packages": list_packages(device),
        "providers": repr(providers),
        "runs_on": repr(device.device or "CPU"),
        "settings": repr(device.session_settings),
        "backend_module": repr(module),
        "backend_class": repr(attribute) if attribute else "",
        "runtime": device.runtime,
    }


def list_packages(device: Device) -> str:
    """Return the packages that the script imports."""
    package = device.row.package or device.module.partition(":")[0].partition(".")[0]
    return join_words(dict.fromkeys(("torch", "onnx", package)))


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
    # A wrapper must create or unpack objects that no exporter supports.
    has_objects = any(each.is_object for each in spec.containers)
    has_values = any(item.scalar and not is_symbolic_integer(item) for item in spec.inputs)
    wraps = traces and not is_plain
    wraps |= reference.returns_objects or (by_dynamo and (has_objects or has_values))
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
        flat_args=_format_tuple(
            [format_flat_argument(item, by_dynamo=by_dynamo) for item in spec.inputs]
        ),
        hint_args=(
            _format_tuple([format_hint(item, spec) for item in spec.inputs])
            if wraps
            else hints.args
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
    option = spec.options.get("custom_opsets")
    declared = option if isinstance(option, Mapping) else {}
    custom = (op.name.partition("::")[0] for op in spec.custom_ops)
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
        "domains": [*_DOMAINS, *declared, *custom],
        "opset": record.cell.opset,
        "sample": sample.name,
        "dynamic_axes": spec.dynamic_axes,
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
        packages=list_packages(device),
    )


def _list_masks(spec: ModelSpec) -> dict[str, tuple[str, int, list[Dim], list[Dim]]]:
    """Return the mask of each output that has one; see `checks/comparison/compare_outputs.py`."""
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


def _locate_source(spec: ModelSpec) -> dict[str, object]:
    """Return the values of the source and the weights, which are copied to the folder."""
    folder = PurePosixPath(spec.manifest).parent
    module = ""
    attribute = ""
    is_file = False
    if not spec.is_saved:
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
        "weights_key": repr(spec.weights_names.key),
        "weights_strip": repr(spec.weights_names.strip),
        "weights_prefix": repr(spec.weights_names.prefix),
        "weights_tensors": are_tensors,
        "weights_pickle": bool(spec.weights) and not are_tensors,
    }


def _list_limits(spec: ModelSpec, record: Record, reference: Reference) -> list[dict[str, object]]:
    """Return the limit of each output: of the check, of the manifest, or of PyTorch's noise."""
    allowed = record.blame.allowed if record.blame else ()
    if allowed:
        return [_format_limit(item) for item in allowed]
    limits: list[dict[str, object]] = []
    for output, noise, step in zip_longest(spec.outputs, reference.noise, reference.steps):
        bound = select_bound(spec, output, record.cell.device)
        atol, rtol = bound.atol, bound.rtol
        if bound.steps is not None:
            atol, rtol = bound.steps * (step or 0.0), 1e-6
        if atol is None and rtol is None:
            noises = None if noise is None else _NOISE_FACTOR * noise
            limits.append({"noises": noises, "places": _LAST_PLACES})
        else:
            limits.append(_format_limit(OutputLimit(atol=atol or 0.0, rtol=rtol or 0.0)))
    return limits


def _format_limit(allowed: OutputLimit) -> dict[str, object]:
    if allowed.items:
        return {"items": [_format_limit(item) for item in allowed.items]}
    fields = allowed.model_dump(exclude={"items"})
    return fields | {"atol": allowed.atol or 0.0, "rtol": allowed.rtol or 0.0}


def _read_entry(spec: ModelSpec, root: Path) -> str:
    """Return the model's part of the manifest, up to the header of another table."""
    try:
        text = read_regular_file(root / spec.manifest, TEXT_LIMIT, may_be_link=True)
        lines = text.decode().splitlines()
    except (OSError, ValueError):
        return ""
    entry = lines[spec.line - 1 : spec.line]
    for line in lines[spec.line :]:
        if line.startswith("[") and not line.lstrip("[").startswith(f"models.{spec.id}."):
            break
        entry.append(line)
    return "\n".join(entry).rstrip()
