"""Turn an observation and the facts of its runs into the text of an entry."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Array, InlineTable, Table

from exporter.commands.recording.observation import (
    Observation,
    ObservedTensor,
    ProbeResult,
)
from exporter.commands.recording.sources import Source
from exporter.manifest.loader import RESERVED_IDS
from exporter.manifest.resolved.call import Dim
from exporter.manifest.resolved.keys import COMPLETE, DECODER, ENCODER, NAMES_OF_DECODER

#: The opset of `add`: the lowest one that both exporters write without a conversion.
DEFAULT_OPSET = 18
_WIDTH = 96
#: Names of a file or a class that many scripts have.
_EMPTY_NAMES = frozenset(
    {"", "a model", "model", "onnx", "export", "exported", "output", "out", "src"}
    | {"deploy", "deployment", "tools", "tool", "scripts", "script", "examples", "python"}
)
#: The number of a layer in the name of a tensor.
_LAYER = re.compile(r"\.\d+\.")


def choose_id(observation: Observation, taken: Collection[str]) -> str:
    """Return an ID from the name of the file or of the class, which no entry has."""
    if observation.id:
        return observation.id
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", observation.label)
    text = observation.title or words.rpartition(".")[2]
    if text.casefold() in _EMPTY_NAMES:  # then the class or a folder has a name
        folders = [each.name for each in Path(observation.script.file).parents]
        known = (words.rpartition(".")[2], *folders)
        text = next((each for each in known if each.casefold() not in _EMPTY_NAMES), text)
    name = re.sub(r"[^a-z0-9_.-]+", "-", text.casefold()).strip("-_.")[:90] or "model"
    used = {each.casefold() for each in taken} | RESERVED_IDS
    numbers = (f"{name}-{number}" for number in range(2, len(used) + 3))
    return next(each for each in (name, *numbers) if each not in used)


def format_entry(
    id: str, observation: Observation, source: Source, probe: ProbeResult | None, folder: str
) -> str:
    """Return the manifest file of one entry.

    `probe`: The measured facts; None for an entry with the observed sizes and any output.
    """
    document = tomlkit.document()
    document.add("format", tomlkit.item(1))
    document.add(tomlkit.nl())
    table = tomlkit.table()
    if source.reason:
        _add_comment(table, f"a function builds the model, because {source.reason}")
    table.add("source", source.text)
    if source.init:
        table.add("init", _inline(source.init))
    if probe and probe.weights:
        file = Path(os.path.relpath(probe.weights, folder)).as_posix()
        names = probe.weights_names.model_dump(exclude_defaults=True)
        table.add("weights", _inline({"file": file, **names}) if names else file)
    _add_call(table, observation, probe)
    _add_settings(table, observation)
    notes = (*observation.notes, *(probe.notes if probe else ()))
    for note in notes:
        _add_comment(table, note)
    models = tomlkit.table(is_super_table=True)
    models.add(id, table)
    document.add("models", models)
    return tomlkit.dumps(document)


def _format_opsets(opsets: Sequence[int]) -> int | list[int]:
    return opsets[0] if len(opsets) == 1 else list(opsets)


def name_part(id: str, part: str, parts: Collection[str]) -> str:
    """Return the ID of the entry with a part of a model that generates."""
    return id if part == _find_main_part(parts) else f"{id}-{part}"


def _find_main_part(parts: Collection[str]) -> str:
    """Return the part that selects tokens."""
    return COMPLETE if COMPLETE in parts else DECODER


def format_generator(
    id: str, source: Source, measured: Mapping[str, Any], opsets: Sequence[int]
) -> str:
    """Return the manifest file of a model that generates, with an entry for each part."""
    lines = ["format = 1"]
    lines += [f"# {each}" for each in (describe_missing_part(measured),) if each]
    tokens = dict(measured["tokens"])
    search = _inline(tokens.pop("search", {}))
    words = [f"{name} = {json.dumps(each)}" for name, each in tokens.items() if each is not None]
    words += [f"search = {search.as_string()}"] if search else []
    parts = measured["parts"]
    main = _find_main_part(parts)
    for part, tables in parts.items():
        name = name_part(id, part, parts)
        lines += ["", f"[models.{name}]", f"source = {json.dumps(source.text)}"]
        settings = [] if part == DECODER == main else [f'part = "{part}"']
        settings += ["steps = 32"] if part == main else []
        # The decoder of an encoder has a loop of its own, too, which begins with the same token.
        settings += words if part == main or (part == DECODER and ENCODER in parts) else []
        if part == COMPLETE:
            links = [name_part(id, each, parts) for each in parts if each != COMPLETE]
            lines += [f"chain = {json.dumps(links)}", *_format_feeds(id, parts)]
        else:
            lines.append('exporter = "transformers"')
        if source.init:
            lines.append(f"init = {_inline(source.init).as_string()}")
        lines.append(f"generate = {{ {', '.join(settings)} }}")
        dims = {dim for key in ("inputs", "outputs") for t in tables[key] for dim in t["shape"]}
        limits = [axis for axis in ("total", "source") if axis in dims and measured["limit"]]
        lines += [f"axes.{axis} = {{ max = {measured['limit']} }}" for axis in limits]
        lines.append(f"opsets = {_format_opsets(opsets)}")
    return "\n".join([*lines, ""])


def describe_missing_part(measured: Mapping[str, Any]) -> str:
    """Return why a model with pictures has no entry for its encoder, or ""."""
    problem = measured.get("no_encoder", "")
    return f"No entry for the encoder of pictures: {problem}" if problem else ""


def format_interface(id: str, measured: Mapping[str, Any], part: str = DECODER) -> str:
    """Return the file with the interface of a part; equal layers of a cache are one table."""
    text = "a promise, which the gate compares key by key"
    tables = measured["parts"][part]
    name = name_part(id, part, measured["parts"])
    lines = [f"# The inputs and outputs of {name}: {text}.", "", f"[{part}]"]
    for key in ("inputs", "outputs"):
        lines += [f"{key} = [", *_format_tensors(tables[key], measured), "]"]
    if any("values" in item and item["name"] == "input_ids" for item in tables["inputs"]):
        words = f"{{ randint = [0, {measured['vocabulary']}] }}"
        lines.append(f'cases = [{{ name = "words", values = {{ input_ids = {words} }} }}]')
    axes = [f"{key} = {_inline(each).as_string()}" for key, each in tables.get("axes", {}).items()]
    dims = {dim for each in tables["inputs"] for dim in each["shape"]}
    if part in (DECODER, COMPLETE) and "past" in dims:
        length = '"length"' if "length" in dims else "1"
        axes = ["past = { min = 0 }", f'total = {{ sum = ["past", {length}] }}', *axes]
    return "\n".join([*lines, *(("", f"[{part}.axes]", *axes) if axes else ()), ""])


def _format_feeds(id: str, parts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the feeds of a chain: each link gets what an earlier one gives by the same name.

    The present keys and values of an encoder are the past ones of its decoder.
    """
    # By the name of an input of the decoder that has another one in the whole.
    given: dict[str, str] = {}
    for part, tables in parts.items():
        name = name_part(id, part, parts)
        if part == DECODER and ENCODER in parts:
            known = {item["name"] for item in parts[COMPLETE]["inputs"]}
            given |= {old: new for new, old in NAMES_OF_DECODER.items() if new in known}
        inputs = [_LAYER.sub(".{layer}.", item["name"]) for item in tables["inputs"]]
        for item in dict.fromkeys(inputs) if part != COMPLETE else ():
            if item in given:
                yield f"feeds.{json.dumps(f'{name}.{item}')} = {json.dumps(given[item])}"
        outputs = [_LAYER.sub(".{layer}.", item["name"]) for item in tables["outputs"]]
        for item in outputs:
            given[item.replace("present", "past_key_values", 1)] = f"{name}.{item}"


def _format_tensors(
    tensors: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]
) -> Iterator[str]:
    forms: dict[str, list[Mapping[str, Any]]] = {}
    for tensor in tensors:
        forms.setdefault(_LAYER.sub(".{layer}.", tensor["name"]), []).append(tensor)
    is_equal = all(
        len({(t["dtype"], *t["shape"]) for t in group}) == 1
        and ("{" not in name or name.format(layer=len(group) - 1) in {t["name"] for t in group})
        for name, group in forms.items()
    )
    groups = forms if is_equal else {tensor["name"]: [tensor] for tensor in tensors}
    for name, group in groups.items():
        first, dtype = group[0], group[0]["dtype"]
        words = [f'name = "{name}"', f"shape = {json.dumps(first['shape'])}"]
        if dtype != "float32":
            words.append(f'dtype = "{dtype}"')
        if "mask" in name:
            side = "left" if "total" in first["shape"] else "right"
            words.append(f'fill = {{ mask = "{side}" }}')
        elif values := first.get("values"):
            words.append(f"fill = {{ randint = {json.dumps(values)} }}")
        elif "int" in dtype and "." not in name:
            rows = measured["limit"] or 64 if name == "position_ids" else measured["vocabulary"]
            words.append(f"fill = {{ randint = [0, {rows}] }}")
        if "{" in name:
            words.append(f"repeat = {{ layer = {len(group)} }}")
        yield f"  {{ {', '.join(words)} }},"


def update_entry(
    text: str, id: str, recorded: str, observation: Observation, opsets: Collection[int]
) -> tuple[str, dict[str, str]]:
    """Return a manifest with the promises of a recorded one, and the keys that differ.

    Names of axes, limits, each `fill`, more opsets, more options and other keys are kept.
    `opsets` are those of the entry, which `[defaults]` may have.
    """
    document, new = tomlkit.parse(text), tomlkit.parse(recorded)["models"][id]
    table = document["models"][id]
    old, values = table.unwrap(), new.unwrap()
    for item in values["outputs"][len(observation.outputs) :]:
        del item["name"]  # a guess, or a name that torch chose
    # The opset of a call is a guess.
    exported = observation.opsets or ((observation.opset,) if observation.opset else ())
    old["opsets"], values["opsets"] = sorted({*opsets}), sorted({*opsets, *exported})
    written = {*values} - {"axes", "rollout"} | {"weights", "constants", "containers"}
    keys = [key for key in sorted(written) if not _covers(old.get(key), values.get(key))]
    for key in keys:
        items = new.get(key)
        if key in ("inputs", "outputs"):
            table[key] = _format_tables(_merge_items(old.get(key, []), items))
            for name, limits in new.get("axes", {}).items():
                if name not in table.get("axes", {}):
                    table.setdefault("axes", tomlkit.table())[name] = limits
        elif items is None:
            table.pop(key, None)
        else:
            table[key] = values[key] if key == "opsets" else items
    differences = {key: f"{old.get(key)} -> {values.get(key)}" for key in keys}
    return tomlkit.dumps(document), differences


def _merge_items(old: Sequence[Any], new: Sequence[Any]) -> list[dict[str, Any]]:
    """Return recorded inputs or outputs with the names of axes and the keys of a user."""
    merged = []
    for index, item in enumerate(new):
        named = [each for each in old if each.get("name") == item["name"]]
        before = dict(*(named or old[index : index + 1])[:1])
        pairs = zip(before.pop("shape", ()), item["shape"], strict=False)
        shape = [a if isinstance(a, str) and isinstance(b, int) else b for a, b in pairs]
        user_keys = {key: each for key, each in before.items() if key not in ("dtype", "at")}
        shape = shape if len(shape) == len(item["shape"]) else item["shape"]
        merged.append({**item, **user_keys, "name": item["name"], "shape": shape})
    return merged


def _covers(old: Any, new: Any) -> bool:
    """Return whether a value of an entry promises a recorded one."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = new.keys() - {"fill"} - ({"name"} - old.keys()) | ({"dtype"} & old.keys())
        default = {"dtype": "float32"}
        return all(_covers({**default, **old}.get(n), {**default, **new}.get(n)) for n in names)
    if isinstance(old, list) and isinstance(new, list):
        # An axis with a name promises each size.
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(isinstance(a, str) or _covers(a, b) for a, b in pairs)
    return bool(old == new)


def _add_comment(table: Table, text: str) -> None:
    printable = "".join(each if each.isprintable() else " " for each in text)
    for line in textwrap.wrap(printable, _WIDTH):
        table.add(tomlkit.comment(line))


def _add_call(table: Table, observation: Observation, probe: ProbeResult | None) -> None:
    """Add a comment for each guess, then inputs, outputs, constants, containers and axes."""
    names = _distinct([each.name for each in observation.tensors])
    observed = [each.shape for each in observation.tensors]
    shapes: Sequence[Sequence[Dim]] = probe.inputs if probe and probe.inputs else observed
    inputs, comments = _describe_inputs(observation, probe, names, shapes)
    outputs: list[dict[str, Any]] = [{"name": "output", "shape": []}]
    if probe is None:  # a draft, which only this command reads
        comments = []
    else:
        outputs = list(_list_outputs(observation, probe, names))
        comments += _list_guessed_axes(observation, shapes)
        comments += _explain_output_names(observation, probe, [each["name"] for each in outputs])
    for text in comments:
        _add_comment(table, text)
    tables = {
        "inputs": inputs,
        "outputs": outputs,
        "constants": [{"at": each.at, "value": each.value} for each in observation.constants],
        "containers": [each.model_dump() for each in observation.containers],
    }
    for key, items in tables.items():
        if items:
            table.add(key, _format_tables(items))
    if probe and (rollout := _describe_loop(inputs, outputs)):
        pairs = ", ".join(f"{target} is {output}" for output, target in rollout["feeds"].items())
        _add_comment(table, f"guessed: the loop, in which {pairs} of the step before")
        table.add("rollout", _inline(rollout))
    if probe:
        for name, limits in _list_axes(observation, probe).items():
            table.add(tomlkit.key(["axes", name]), _inline(limits))


#: The ends of the names of a memory before and after a call.
_BEFORE, _AFTER = re.compile(r"_?(in|0|prev|past|old)$"), re.compile(r"_?(out|1|n|next|new)$")
#: The names of a memory; other inputs with the form of an output are no states.
_MEMORY = re.compile(
    r"(?:^|_)(?:[hc]x?|hidden|cell|memory|memories|mem|states?|carry|rnn|lstm|gru)(?=_|\d|$)"
)
#: Steps of a loop that `add` writes, and those after which a memory is reset.
_STEPS, _RESET_STEPS = 16, 5
_RESET = re.compile(r"(?:^|_)(resets?|dones?|episode_starts?|is_first|first|starts)(?:_|$)")


def _describe_loop(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the loop of a model with a memory, or {} if no output is an input of the next step.

    They have one dtype, the same sizes, and a common name: `h_in` and `h_out`, `h` and `h1`,
    `lstm_states_0` and `states_0`. Outputs without a name are in the order of the inputs.
    """
    memories = [each for each in inputs if _MEMORY.search(each["name"].casefold())]
    feeds: dict[str, str] = {}
    for item in memories:
        names = (each["name"] for each in outputs if _form(each) == _form(item))
        named = (name for name in names if name not in feeds and _are_related(item["name"], name))
        if name := next(named, ""):
            feeds[name] = item["name"]
    rest = [each for each in memories if each["name"] not in feeds.values()]
    for form in {str(_form(each)): _form(each) for each in rest}.values():
        targets = [each["name"] for each in rest if _form(each) == form]
        unnamed = [
            each["name"]
            for each in outputs
            if _form(each) == form and re.fullmatch(r"output_\d+", each["name"])
        ]
        if len(targets) == len(unnamed):
            feeds |= dict(zip(unnamed, targets, strict=True))
    if not feeds:
        return {}
    constants = {
        item["name"]: [_RESET_VALUES[kind][number % _RESET_STEPS == 0] for number in range(_STEPS)]
        for item in inputs
        if item["name"] not in feeds.values() and _RESET.search(item["name"].casefold())
        if (kind := re.sub(r"\d+$", "", item.get("dtype", "float32"))) in _RESET_VALUES
    }
    return {"steps": _STEPS, "feeds": feeds} | ({"constants": constants} if constants else {})


def _form(table: Mapping[str, Any]) -> tuple[str, list[Dim]]:
    return table.get("dtype") or "float32", table["shape"]


def _are_related(before: str, after: str) -> bool:
    """Return whether an output has the name of an input, without the words before and after."""
    pairs = {(before, after), (_BEFORE.sub("", before), _AFTER.sub("", after))}
    pairs |= {(_BEFORE.sub("", before), after), (before, _AFTER.sub("", after))}
    return any(
        one == other or one.endswith(f"_{other}") or other.endswith(f"_{one}")
        for one, other in pairs
    )


#: The values of a step without and with a reset, by the kind of a dtype.
_RESET_VALUES: Mapping[str, Sequence[bool | float]] = {
    "bool": (False, True),
    "int": (0, 1),
    "uint": (0, 1),
    "float": (0.0, 1.0),
}


def _describe_inputs(
    observation: Observation,
    probe: ProbeResult | None,
    names: Sequence[str],
    shapes: Sequence[Sequence[Dim]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the table of each input, and a comment for each `fill` that is a guess."""
    sizes = {
        size: axis
        for shape, tensor in zip(shapes, observation.tensors, strict=True)
        for axis, size in zip(shape, tensor.shape, strict=True)
        if isinstance(axis, str)
    }
    tables: list[dict[str, Any]] = []
    comments = []
    rows = probe.rows if probe else {}
    for tensor, name, shape in zip(observation.tensors, names, shapes, strict=True):
        fill, reason = choose_fill(tensor, shape, rows.get(name), sizes)
        if reason:
            comments.append(f"guessed: values of {name}: {reason}")
        table: dict[str, Any] = {"name": name, "shape": list(shape)}
        if tensor.dtype != "float32":
            table["dtype"] = tensor.dtype
        if tensor.at != f"args[{len(tables)}]":
            table["at"] = tensor.at
        table["fill"] = fill
        tables.append(table)
    return tables, comments


def _list_guessed_axes(observation: Observation, shapes: Sequence[Sequence[Dim]]) -> list[str]:
    """Return the comment about the axes that no script declared; nothing without such an axis."""
    declared = {dim.name for each in observation.tensors for dim in each.dynamic.values()}
    axes = {dim for shape in shapes for dim in shape if isinstance(dim, str)} - declared
    names = ", ".join(sorted(axes))
    return [f"guessed: axes {names}: the model ran at several sizes of each"] if axes else []


def _explain_output_names(
    observation: Observation, probe: ProbeResult, names: Sequence[str]
) -> list[str]:
    """Return the comment about names of outputs that the script did not choose in this order."""
    file_names = observation.file_outputs
    is_guessed = len(observation.outputs) < len(names)
    if file_names and [*file_names] != [*names]:
        text = f"the script's file names its outputs {', '.join(file_names)}"
        return [f"{text}; programs that use these names must change"]
    if file_names and is_guessed:
        labels = ", ".join(each.name or "no name" for each in probe.outputs)
        return [f"outputs are named as in the script's file; in PyTorch: {labels}"]
    if all(each.name for each in probe.outputs):
        return []  # the source has the names
    return ["guessed: names of outputs that no script names"] if is_guessed else []


def _list_outputs(
    observation: Observation, probe: ProbeResult, inputs: Sequence[str]
) -> Iterator[dict[str, Any]]:
    names = [each.name for each in observation.outputs[: len(probe.outputs)]]
    for index, output in enumerate(probe.outputs[len(names) :], len(names)):
        default = f"output_{index}" if len(probe.outputs) > 1 else "output"
        chosen = [*observation.file_outputs[index : index + 1], output.name, default]
        names.append(next(filter(None, chosen)))
    names = _distinct([*inputs, *names])[len(inputs) :]
    for name, output in zip(names, probe.outputs, strict=True):
        dtype = output.dtype if output.dtype != "float32" else None
        yield {"name": name, "shape": list(output.shape), "dtype": dtype}


def _format_tables(items: Sequence[Mapping[str, Any]]) -> Array:
    """Return an array with one line for each table, without keys that are None."""
    array = tomlkit.array().multiline(multiline=True)
    for item in items:
        array.append(_inline({name: each for name, each in item.items() if each is not None}))
    return array


def _add_settings(table: Table, observation: Observation) -> None:
    opsets = observation.opsets or (observation.opset or DEFAULT_OPSET,)
    if observation.kind == "call" or not (observation.opsets or observation.opset):
        _add_comment(table, "guessed: the opset, since no script exports with one")
    table.add("opsets", _format_opsets(opsets))
    if observation.exporter:
        table.add("exporter", observation.exporter)
    if observation.options:
        table.add("options", _inline(observation.options))


def _list_axes(observation: Observation, probe: ProbeResult) -> dict[str, dict[str, Any]]:
    """Return the limits of each axis; those of the script take precedence."""
    axes = {name: dict(limits) for name, limits in probe.axes.items()}
    for tensor in observation.tensors:
        for dim in tensor.dynamic.values():
            limits = {"min": dim.min, "max": dim.max}
            if dim.name in axes:
                axes[dim.name] |= {key: each for key, each in limits.items() if each is not None}
    return {name: limits for name, limits in axes.items() if limits}


def choose_fill(
    tensor: ObservedTensor, shape: Sequence[Dim], rows: int | None, axes: Mapping[int, str]
) -> tuple[Any, str]:
    """Return the fill of an input, or None for the default, and the reason if it is a guess.

    `rows`: The rows of the embedding that the input selects; None if there is none.
    """
    if rows is not None:
        return {"randint": [0, rows]}, ""
    low, high = tensor.low, tensor.high
    if tensor.dtype == "bool" or "int" in tensor.dtype:
        return _choose_integers(tensor, shape, axes)
    if low is not None and low == high and low not in (0, *([1] if len(tensor.shape) > 1 else [])):
        # Zeros and ones of a larger shape are a usual example of any values.
        ends = sorted((0.5 * low, 1.5 * low))
        return {"uniform": [float(f"{each:.3g}") for each in ends]}, f"only {low:g} was observed"
    if low is None or high is None or low == high or -8 < low < 0 < high < 8:
        return None, ""
    if low >= 0 and high <= 1:
        return {"uniform": [0.0, 1.0]}, "0 to 1, as observed"
    if low >= 0 and 8 < high <= 255:
        return {"uniform": [0.0, 255.0]}, "0 to 255, near the observed ones"
    return {"uniform": [float(f"{low:.3g}"), float(f"{high:.3g}")]}, "the observed range"


def _choose_integers(
    tensor: ObservedTensor, shape: Sequence[Dim], axes: Mapping[int, str]
) -> tuple[Any, str]:
    first, last = int(tensor.low or 0), int(tensor.high or 0)
    name = tensor.name.casefold()
    is_row = len(shape) > 1 or isinstance(shape[-1] if shape else 0, str)
    if {first, last} <= {0, 1} and is_row and "pad" in name:
        return {"padding": "right"}, "1 is padding, by its name"
    if {first, last} <= {0, 1} and is_row and "mask" in name:
        return {"mask": "right"}, "a mask of rows, by its name"
    if last in axes and tensor.has_lengths_up_to(last):
        return {"lengths_of": axes[last]}, f"lengths of {axes[last]}, by their name and value"
    if tensor.dtype == "bool":
        return {"bernoulli": 0.5}, "half of them true"
    if first == last:
        return {"randint": [first, first + 2]}, f"only {first} was observed"
    return {"randint": [first, last + 1]}, f"{first} to {last} were observed"


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number after each repeated one."""
    result: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in range(2, len(names) + 2))
        result.append(next(each for each in (name, *numbered) if each not in result))
    return result


def _inline(value: Mapping[str, Any]) -> InlineTable:
    table = tomlkit.inline_table()
    for key, each in value.items():
        table.add(key, _inline(each) if isinstance(each, dict) else each)
    return table
