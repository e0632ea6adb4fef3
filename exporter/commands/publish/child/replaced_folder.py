"""The differences of a published folder and the one that it replaces, for a user of the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from exporter.commands.publish.published_folder import (
    EXAMPLE,
    MODEL,
    Publication,
    read_contract,
)
from exporter.core.device_name import DeviceName
from exporter.core.text import format_bytes
from exporter.manifest import Device, ModelSpec
from exporter.manifest.syntax.releases import format_release
from exporter.report.pages.model_page import describe_contract
from exporter.runtimes import open_session

_KEYS = ("version", "license", "description", "owner")
#: The texts of a changed preprocessing or of labels would be too long.
_LONG = ("preprocess", "labels", "meaning")


def list_changes(old: Path, new: Path) -> tuple[str, ...]:
    """Return what is different for a user: interface, requirements, size and numbers."""
    try:
        folders = [(Publication.from_folder(each), read_contract(each)) for each in (old, new)]
    except (OSError, ValueError) as error:
        return (f"the replaced folder cannot be read: {error}",)
    (before, old_spec), (after, new_spec) = folders
    changes = [*_compare_contracts(old_spec, new_spec), *_compare_files(before, after)]
    if before.exported == after.exported:
        return tuple(changes)
    return (*changes, *_compare_numbers(old, new, new_spec))


def _compare_contracts(old: ModelSpec, new: ModelSpec) -> Iterator[str]:
    for key in _KEYS:
        yield from _compare(key, getattr(old, key), getattr(new, key))
    for key in sorted({**old.metadata, **new.metadata}):
        yield from _compare(f"metadata {key}", old.metadata.get(key), new.metadata.get(key))
    tables = [describe_contract(each) for each in (old, new)]
    for kind in ("inputs", "outputs"):
        items = [{each.name: each for each in getattr(spec, kind)} for spec in (old, new)]
        yield from _compare(kind, ", ".join(items[0]), ", ".join(items[1]))
        rows = [{str(row["name"]): row for row in table[kind]} for table in tables]
        for name in (name for name in items[0] if name in items[1]):
            for key in ("dtype", "shape"):
                yield from _compare(f"{key} of {name}", rows[0][name][key], rows[1][name][key])
            for key in _LONG:
                values = [getattr(each[name], key, None) for each in items]
                if values[0] != values[1]:
                    yield f"{key} of {name}"
    sizes = [{str(row["name"]): row["sizes"] for row in table["axes"]} for table in tables]
    for name in (name for name in sizes[0] if name in sizes[1]):
        yield from _compare(f"sizes of {name}", sizes[0][name], sizes[1][name])


def _compare_files(old: Publication, new: Publication) -> Iterator[str]:
    yield from _compare("commit", old.commit, new.commit)
    first, second = (_describe_needs(each) for each in (old, new))
    yield from _compare("needs", first, second)
    devices = [", ".join(each.cell.device for each in item.records) for item in (old, new)]
    yield from _compare("proved on", *devices)
    sizes = [
        sum(each.artifact.bytes for each in item.records[:1] if each.artifact)
        for item in (old, new)
    ]
    yield from _compare("size", *map(format_bytes, sizes))
    allowed = [{each.output: each for each in item.allowed} for item in (old, new)]
    for name in (name for name in allowed[0] if name in allowed[1]):
        pair = [f"atol {each[name].atol:.3g}, rtol {each[name].rtol:.3g}" for each in allowed]
        yield from _compare(f"allowed error of {name}", *pair)


def _describe_needs(publication: Publication) -> str:
    release, artifact = publication.release, publication.records[0].artifact
    needed = "ONNX Runtime " + (format_release(release) if release else "of the future")
    return f"{needed}, IR version {artifact.ir_version}" if artifact else needed


def _compare_numbers(old: Path, new: Path, spec: ModelSpec) -> Iterator[str]:
    """Run both files on the example of the new folder."""
    if spec.custom_ops or not (new / EXAMPLE).is_file():
        return
    try:
        with np.load(new / EXAMPLE, allow_pickle=False) as file:
            inputs = {each.name: file[each.name] for each in spec.inputs if each.name in file}
        device = Device(name=DeviceName("cpu"), runtime="onnxruntime")
        sessions = [open_session(each / MODEL, device) for each in (old, new)]
        outputs = [dict(zip(s.output_names, s.run(inputs), strict=True)) for s in sessions]
    except Exception as error:
        yield f"the replaced file does not run on the new {EXAMPLE}: {str(error)[:200]}"
        return
    for name in (name for name in outputs[0] if name in outputs[1]):
        first, second = outputs[0][name], outputs[1][name]
        if isinstance(first, list) or isinstance(second, list) or first.dtype.kind == "O":
            continue
        if first.shape != second.shape:
            yield f"numbers of {name}: another shape"
        elif not np.array_equal(first, second):
            wide = [each.astype(np.float64) for each in (first, second)]
            difference = np.abs(wide[0] - wide[1]).max()
            scale = np.abs(wide[0]).max()
            yield f"numbers of {name}: by up to {difference:.3g}, its largest value is {scale:.3g}"


def _compare(name: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{name}: {old or 'none'} -> {new or 'none'}"
