"""The keys `preprocess`, `labels` and `metadata`, which tell a user how to run the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.files import TEXT_LIMIT, read_regular_file
from exporter.manifest.resolved.call import Dim, Preprocess
from exporter.manifest.rules.fills import COMPLEX, format_dims
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.values import KeyPath, quote

#: Keys that the tool or PyTorch writes.
_OWN_KEYS = ("exporter.", "pkg.")
#: The channels of a picture.
_CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}


def resolve_metadata(entry: EffectiveSettings) -> Mapping[str, str]:
    """Return the texts for the file; report keys of the tool."""
    for key in entry.settings.metadata:
        if key.startswith(_OWN_KEYS):
            message = f"keys that begin with {quote(key.partition('.')[0])} are the tool's; rename"
            entry.add_problem(("metadata", key), message)
    return entry.settings.metadata


def resolve_preprocess(
    entry: EffectiveSettings, index: int, dims: Sequence[Dim]
) -> Preprocess | None:
    """Return the preprocessing of an input; report one that does not fit its shape."""
    key_path: KeyPath = ("inputs", index, "preprocess")
    table = entry.settings.inputs[index].preprocess
    if table is None:
        return None
    if table.function:
        function = entry.check_function((*key_path, "function"), table.function)
        return table.model_copy(update={"function": function})
    sizes = dict(zip(table.layout, dims, strict=False))
    if table.layout and len(table.layout) != len(dims):
        shape = f"the shape {format_dims(tuple(dims))} has {len(dims)} dimensions"
        message = f"has {len(table.layout)} letters, and {shape}; write a letter for each"
        entry.add_problem((*key_path, "layout"), message)
        return table
    channels = sizes.get("C")
    expected = _CHANNELS.get(table.colour or "", channels)
    if channels != expected and isinstance(channels, int):
        needed = f"{quote(table.colour or '')} has {expected} channels"
        message = f"{needed}, and the shape {channels}; correct `layout` or `colour`"
        entry.add_problem((*key_path, "colour"), message)
    for key in ("mean", "std"):
        numbers = len(getattr(table, key))
        if numbers > 1 and numbers != expected:
            has = f"and there are {expected} channels" if expected else "and no C in `layout`"
            message = f"has {numbers} numbers, {has}; write one, or one for each channel"
            entry.add_problem((*key_path, key), message)
    for position, letter in enumerate("HW"):
        size, dim = (table.size or (None, None))[position], sizes.get(letter)
        if size is not None and isinstance(dim, int) and size != dim:
            message = f"{size} is not the size {dim} of {letter} in the shape; write {dim}"
            entry.add_problem((*key_path, "size", position), message)
    return table


def resolve_labels(
    entry: EffectiveSettings, index: int, dims: Sequence[Dim], dtype: str
) -> tuple[str, ...]:
    """Return the labels of an output; report those that do not fit it."""
    key_path: KeyPath = ("outputs", index, "labels")
    table = entry.settings.outputs[index]
    if not table.labels:
        return ()
    labels = table.labels
    if isinstance(labels, str):
        labels = _read_labels(entry, key_path, labels)
    if table.kind == "sequence" or dtype in (*COMPLEX, "bool"):
        kind = "a list of tensors" if table.kind == "sequence" else dtype
        entry.add_problem(key_path, f"does not suit {kind}; remove it")
    elif dtype in FLOATS and labels:
        size = dims[-1] if dims else "missing"
        if isinstance(size, str):
            message = f"needs an output whose last axis has a fixed size; it is {quote(size)}"
            entry.add_problem(key_path, message)
        elif size != len(labels):
            counts = f"{len(labels)} labels, and the last axis of the output has the size {size}"
            message = f"{counts}; correct the labels or the shape"
            entry.add_problem(key_path, message)
    return tuple(labels)


def _read_labels(entry: EffectiveSettings, key_path: KeyPath, text: str) -> tuple[str, ...]:
    """Return the lines of a file, () if it has a problem."""
    name = entry.check_file(key_path, text)
    folder = entry.own_layer.folder
    file = entry.project.find_file(f"{folder}/{name}" if folder else name)
    if file is None:
        return ()
    try:
        content = read_regular_file(file, TEXT_LIMIT, may_be_link=True).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        entry.add_problem(key_path, f"{quote(text)} cannot be read: {error}")
        return ()
    lines = tuple(line.strip() for line in content.rstrip().splitlines())
    bad = next((n for n, line in enumerate(lines, 1) if not line or not line.isprintable()), 0)
    if bad or not lines:
        entry.add_problem(key_path, f"{quote(text)}: line {bad or 1} is no label; one a line")
        return ()
    return lines
