"""The text of the script and of its README.

In: a cell's contract and record. Out: Python and markdown. Names and messages are untrusted: in
the script they stand as literals alone.
"""

from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath

from exporter.core.sanitize import join_lines
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import Device, ModelSpec
from exporter.manifest.syntax.call_paths import is_positional_call
from exporter.records.record import (
    OutputLimit,
    Record,
    Route,
    Stage,
)
from exporter.report.pages.templates import render, render_script
from exporter.tools.repro.op_files import custom_tables
from exporter.tools.repro.repro_call import (
    flat_hint_formatter,
    format_call,
    format_flat_argument,
    format_flat_call,
    format_hints,
    format_options,
    is_symbolic_integer,
    list_dynamic_axes,
    split_reference,
)
from exporter.tools.repro.runtime import package_of, runtime_values

#: Without a word of the record: this many times PyTorch's own noise, or units in the last place.
_NOISES, _PLACES = 16.0, 64.0
_CPU = Device(name="cpu", runtime="onnxruntime")
#: The methods of a module that cast its floating weights.
_CASTS = {"float32": "float", "float16": "half", "bfloat16": "bfloat16", "float64": "double"}


def render_repro_script(
    spec: ModelSpec, record: Record, device: Device, showing: Sample, reference: Reference
) -> str:
    """The script; see `templates/repro.py.jinja`."""
    route = record.route or Route(exporter="dynamo", capture="export", reason="")
    by_dynamo = route.exporter == "dynamo"
    traces = not by_dynamo and route.capture != "script"
    has_numbers = any(item.scalar for item in spec.inputs)
    others = bool(spec.constants or spec.containers) or has_numbers
    is_plain = is_positional_call((item.at for item in spec.inputs), others=others)
    wraps = (traces and not is_plain) or _is_made_inside(spec, reference, by_dynamo=by_dynamo)
    is_dynamic = _has_hints(spec)
    module, attribute, is_file = _source(spec)
    values: dict[str, object] = {
        "cell": str(record.cell),
        "seen": join_lines(record.message) or record.status.value,
        "manifest_folder": f"source/{PurePosixPath(spec.manifest).parent}",
        "folders": ["source", f"source/{PurePosixPath(spec.manifest).parent}"],
        "module": module,
        "attribute": attribute,
        "init": spec.init,
        "seed": spec.seed,
        "input_names": [item.name for item in spec.inputs],
        "call_names": _names(spec, wraps=wraps),
        "output_names": [item.name for item in spec.outputs],
        "complex_inputs": [item.name for item in spec.inputs if item.is_complex],
        "lists": [i for i, item in enumerate(spec.outputs) if item.kind == "sequence"],
        "input_shapes": [list(item.shape) for item in spec.inputs],
        "opset": record.cell.opset,
        "sample": showing.name,
        "dynamic_axes": list_dynamic_axes(spec),
        "limits": _limits(record, reference),
        "strict": route.capture == "strict",
    }
    texts = {name: repr(value) for name, value in values.items()}
    options = format_options(spec, route.exporter)
    custom = custom_tables(spec, record.cell.opset, route.exporter)
    texts |= {name: repr(value) for name, value in custom.items()}
    expressions = _expressions(spec, wraps=wraps, by_dynamo=by_dynamo)
    return render_script(
        "repro.py",
        **texts,
        **expressions,
        options=[f"{name}={text}," for name, text in options.items()],
        mode=spec.mode,
        has_custom_ops=bool(custom),
        cast=_CASTS[spec.precision] if spec.precision else "",
        is_file=is_file,
        **_loading(spec),
        wraps=wraps,
        may_wrap=traces and is_plain and not wraps,
        has_numbers=has_numbers,
        takes_apart=reference.returns_objects,
        is_dynamic=is_dynamic,
        is_scripted=route.capture == "script",
        by_dynamo=by_dynamo,
        captures_first=route.capture == "strict" or record.stage is Stage.CAPTURE,
        **runtime_values(device),
    )


def _names(spec: ModelSpec, *, wraps: bool) -> list[str]:
    """The inputs in the order of the call, or in that of the file where they stand in a row."""
    return [item.name for item in spec.inputs] if wraps else list(format_call(spec).names)


def _expressions(spec: ModelSpec, *, wraps: bool, by_dynamo: bool) -> dict[str, str]:
    """The call and its dynamic dimensions, as the model takes it and in a row."""
    call, hints = format_call(spec), format_hints(spec)
    argument = (
        format_flat_argument if by_dynamo else (lambda item: f"inputs[{item.name!r}].clone()")
    )
    return {
        "args": call.args,
        "kwargs": call.kwargs,
        "flat_args": format_flat_call(spec, argument),
        "hint_args": format_flat_call(spec, flat_hint_formatter(spec)) if wraps else hints.args,
        "hint_kwargs": "{}" if wraps else hints.kwargs,
    }


def _has_hints(spec: ModelSpec) -> bool:
    """Whether anything in the call is dynamic."""
    dims = [dim for item in spec.inputs for dim in item.shape]
    return any(isinstance(dim, str) for dim in dims) or any(map(is_symbolic_integer, spec.inputs))


def _is_made_inside(spec: ModelSpec, reference: Reference, *, by_dynamo: bool) -> bool:
    """Whether the exported module makes objects, or takes them apart, that no exporter knows."""
    objects = any(each.is_object for each in spec.containers)
    numbers = any(item.scalar and not is_symbolic_integer(item) for item in spec.inputs)
    return reference.returns_objects or (by_dynamo and (objects or numbers))


def render_readme(
    spec: ModelSpec,
    record: Record,
    tools: dict[str, str],
    showing: Sample,
    root: Path,
    device: Device = _CPU,
) -> str:
    """What it is, what was seen with which versions, and the entry of the manifest."""
    return render(
        "repro.md",
        None,
        record=record,
        tools=tools,
        sample=showing.name,
        entry=_entry(spec, root),
        spec=spec,
        package=package_of(device),
    )


def _source(spec: ModelSpec) -> tuple[str, str, bool]:
    """What to import, the attribute, and whether it is a file that has no importable name."""
    if spec.is_saved_program or spec.is_saved_script:
        return "", "", False
    module, attribute = split_reference(spec.source)
    if module:
        return module, attribute, False
    where = spec.source.rpartition(":")[0]
    return f"source/{PurePosixPath(spec.manifest).parent / where}", attribute, True


def _loading(spec: ModelSpec) -> dict[str, object]:
    """How the script loads a saved model and weights, which were copied like any other source."""

    def copied(name: str) -> str:
        place = posixpath.normpath(f"source/{PurePosixPath(spec.manifest).parent / name}")
        return repr(place)

    are_tensors = spec.weights.endswith(".safetensors")
    return {
        "saved": copied(spec.source),
        "saved_program": spec.is_saved_program,
        "saved_script": spec.is_saved_script,
        "weights": copied(spec.weights),
        "weights_tensors": are_tensors,
        "weights_pickle": bool(spec.weights) and not are_tensors,
    }


def _limits(record: Record, reference: Reference) -> list[dict[str, object]]:
    """For each output how far it may be off; as the check had it, or by PyTorch's own noise."""
    allowed = record.blame.allowed if record.blame else ()
    if allowed:
        return [_limit(item) for item in allowed]
    return [
        {"noises": None if noise is None else _NOISES * noise, "places": _PLACES}
        for noise in reference.noise
    ]


def _limit(allowed: OutputLimit) -> dict[str, object]:
    if allowed.items:
        return {"items": [_limit(item) for item in allowed.items]}
    if allowed.atol is None:
        return {"atol": 0.0, "rtol": 0.0, "exact": False, "scale": None}
    return {
        "atol": allowed.atol,
        "rtol": allowed.rtol or 0.0,
        "exact": allowed.exact,
        "scale": allowed.scale,
    }


def _entry(spec: ModelSpec, root: Path) -> str:
    """The model's own part of the manifest: from its header to that of something else."""
    try:
        lines = (root / spec.manifest).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    own = lines[spec.line - 1 : spec.line]
    for line in lines[spec.line :]:
        header = line.strip().lstrip("[")
        if line.startswith("[") and not header.startswith((f"models.{spec.id}.",)):
            break
        own.append(line)
    return "\n".join(own).rstrip()
