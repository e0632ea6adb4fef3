"""The tables of models: contracts, opsets and runtimes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from exporter.cache.fingerprint import extract_tool_versions
from exporter.core.check_table import SOFTWARE
from exporter.core.text import format_bytes
from exporter.manifest import Axis, Manifest, ModelSpec
from exporter.manifest.resolved.project import Device
from exporter.manifest.syntax.releases import Release, find_first_release, format_release
from exporter.manifest.syntax.values import format_opsets
from exporter.records.record import Record, RunRecord
from exporter.report import formats
from exporter.report.formats import LEGEND, Mark
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    format_head,
    list_initial_models,
)


def format_axis_sizes(axis: Axis) -> str:
    """Return the promised sizes of an axis: `1 and up`, `past + seq, 1 to 64`."""
    upper = "" if axis.max is None else f" to {axis.max}"
    multiple = f", multiples of {axis.multiple_of}" if axis.multiple_of != 1 else ""
    rule = f"{axis.rule.formula}, " if axis.rule else ""
    return f"{rule}{axis.min}{upper or ' and up'}{multiple}"


#: The most opsets and the most devices with a column each on a page of 869 pixels, and the most
#: models of a part.
WIDE = 12
NARROW = 7
LONG = 40


def build_matrix(
    manifest: Manifest,
    by_model: Mapping[str, Sequence[Cell]],
    history: AcceptanceHistory | None = None,
) -> tuple[Row, ...]:
    """Return the tables of the overview: models with red cells first, then changed and large ones.

    Without a history, no model counts as changed.
    """
    changed = {
        model_id
        for model_id, cells in by_model.items()
        if history and any(history.is_changed(cell) for cell in cells)
    }
    red = {model_id for model_id, cells in by_model.items() if any(cell.is_red for cell in cells)}
    anchors: Counter[str] = Counter()

    def rank(model_id: str) -> tuple[bool, bool, int]:
        return model_id not in red, model_id not in changed, -count_parameters(by_model[model_id])

    parts = sorted(
        _divide_models(manifest).items(),
        key=lambda item: (red.isdisjoint(item[1]), changed.isdisjoint(item[1])),
    )
    return tuple(
        _build_part(
            name,
            {model_id: by_model[model_id] for model_id in sorted(models, key=rank)},
            anchors,
            changed,
        )
        for name, models in parts
    )


def count_parameters(cells: Iterable[Cell]) -> int:
    """Return the largest number of parameters of the files of a model; 0 without a file."""
    files = (cell.record.artifact for cell in cells if cell.record)
    return max((file.parameters for file in files if file), default=0)


def group_by_mark(cells: Collection[Cell]) -> tuple[Row, ...]:
    """Return the opsets of each mark, for one model on one device.

    Opsets that the runtime of the device cannot load are a property of the device. They are listed
    only if the device has no other ones.
    """
    loadable = [cell for cell in cells if not cell.is_beyond_runtime] or cells
    runs: dict[Mark, list[int]] = {mark: [] for mark in LEGEND}
    for each in loadable:
        runs[each.mark].append(each.id.opset)
    return tuple(
        {"opsets": format_opsets(opsets), "mark": mark} for mark, opsets in runs.items() if opsets
    )


def _divide_models(manifest: Manifest) -> dict[str, list[str]]:
    """Return the models of each part: by file, or by first letter if there is only one file."""
    models = manifest.models
    if len(models) <= LONG:
        return {"": [spec.id for spec in models]}
    files = {spec.manifest for spec in models}
    parts: dict[str, list[str]] = {}
    for spec in models:
        parts.setdefault(spec.manifest if len(files) > 1 else spec.id[:1], []).append(spec.id)
    return parts if len(files) > 1 else {name: parts[name] for name in sorted(parts)}


def _build_part(
    name: str,
    by_model: Mapping[str, Sequence[Cell]],
    anchors: Counter[str],
    changed: Collection[str],
) -> Row:
    """Return one table: models by devices; `name` is its heading, empty if there is one part."""
    every = [cell for cells in by_model.values() for cell in cells]
    outcomes: dict[str, dict[str, tuple[Row, ...]]] = {cell.id.device: {} for cell in every}
    for model_id, cells in by_model.items():
        for device in dict.fromkeys(cell.id.device for cell in cells):
            outcomes[device][model_id] = group_by_mark(
                [cell for cell in cells if cell.id.device == device]
            )
    columns = _group_devices(outcomes)
    rows = (
        {
            "model": model_id,
            "cells": tuple(
                tuple(_fill_column(column, {d: outcomes[d].get(model_id, ()) for d in outcomes}))
                for column in columns
            ),
            "is_changed": model_id in changed,
            "is_initial": bool(list_initial_models(cell.record for cell in cells)),
        }
        for model_id, cells in by_model.items()
    )
    # The anchor that GitHub gives a heading; repeated headings have a number.
    plain = " ".join(name.split()).lower()
    slug = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
    anchors[slug] += 1
    return {
        "heading": name,
        "anchor": slug if anchors[slug] == 1 else f"{slug}-{anchors[slug] - 1}",
        "head": format_head(every),
        "devices": tuple(
            ", ".join(column[0]) if len(column) == 1 else "other devices" for column in columns
        ),
        "rows": tuple(rows),
    }


def _group_devices(
    outcomes: Mapping[str, Mapping[str, tuple[Row, ...]]],
) -> list[tuple[tuple[str, ...], ...]]:
    """Return the devices of each column, those with equal results in one tuple.

    `outcomes`: The opsets of each mark, by device and model.

    If the columns are too many for a page, the last one has the devices with the fewest models.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for device, by_model in outcomes.items():
        runs = ((name, run["opsets"], run["mark"]) for name in by_model for run in by_model[name])
        groups.setdefault(tuple(runs), []).append(device)
    columns = [tuple(devices) for devices in groups.values()]
    if len(columns) <= NARROW:
        return [(devices,) for devices in columns]
    by_size = sorted(columns, key=lambda devices: len(outcomes[devices[0]]), reverse=True)
    alone = by_size[: NARROW - 1]
    others = tuple(devices for devices in columns if devices not in alone)
    return [*((devices,) for devices in columns if devices in alone), others]


def _fill_column(
    column: Sequence[tuple[str, ...]], by_device: Mapping[str, tuple[Row, ...]]
) -> Iterator[Row]:
    """Yield the opsets of each mark; the first one of a device has its name in a shared column."""
    for devices in column:
        name = ", ".join(devices) if len(column) > 1 else ""
        for run in by_device.get(devices[0], ()):
            yield {**run, "device": name}
            name = ""


def summarize_support(spec: ModelSpec, cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the model, releases that load its files, its largest size and error, and its axes."""
    passing = [cell.record for cell in cells if cell.record and cell.is_pass]
    by_opset = {record.cell.opset: record for record in passing}
    axes = _describe_axes(spec, passing) if passing else ()
    size = max((record.artifact.bytes for record in passing if record.artifact), default=0)
    errors = [item.metrics.get("max_abs") for record in passing for item in record.checks]
    largest = max((each for each in errors if isinstance(each, int | float)), default=None)
    error = "" if largest is None else formats.format_magnitude(largest)
    releases = _describe_releases(by_opset.values())
    return spec.id, releases, format_bytes(size), error, "; ".join(axes)


def build_support_rows(
    spec: ModelSpec, cells: Sequence[Cell], manifest: Manifest, tools: Mapping[str, str]
) -> tuple[Row, ...]:
    """Return one row for devices of a model with equal results."""
    devices: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for device_name in dict.fromkeys(cell.id.device for cell in cells):
        passing = [
            cell.record
            for cell in cells
            if cell.id.device == device_name and cell.record and cell.is_pass
        ]
        settings = manifest.project.find_device(device_name) if passing else None
        runtime = format_runtime(settings, passing[0], tools) if settings else ""
        row = {
            # The opsets with all promises proved.
            "opsets": format_opsets(record.cell.opset for record in passing),
            "loads": _describe_releases(passing),
            "proved_with": f"{runtime}, {settings.settings}".removesuffix(", ")
            if settings and runtime
            else "",
            "axes": _describe_axes(spec, passing) if passing else (),
        }
        devices.setdefault(tuple(row.items()), []).append(device_name)
    return tuple({"devices": tuple(group), **dict(row)} for row, group in devices.items())


def format_runtime(device: Device, record: Record, tools: Mapping[str, str]) -> str:
    """Return the runtime with its version; "" if the results do not contain the tool."""
    name, tool = device.row.title or device.module or device.runtime, device.row.package
    if record.runtime:
        versions = record.runtime_packages
        plugin = device.provider_library.partition(":")[0].replace("_", "-")
        text = f"{name} {versions.get(tool, '')}".strip() if tool else record.runtime
        text += f", {plugin} {versions[plugin]}" if plugin in versions else ""
        is_software = any(each.metrics.get("hardware") == SOFTWARE for each in record.checks)
        return f"{text} ({SOFTWARE})" if is_software else text
    # A package that is no tool of every cell is a dependency of the record.
    loaded = record.packages.get(tool, "").split(" ")[0]
    has_suffix = bool(record.cell.device.suffix)
    known = {**tools, **extract_tool_versions(record.fingerprint)} if has_suffix else tools
    version = (loaded or known.get(tool, "missing")) if tool else ""
    return "" if version == "missing" else f"{name} {version}".strip()


def _describe_releases(passing: Iterable[Record]) -> str:
    """Return the first release that loads one of the files, and the first that loads all."""
    opsets: dict[Release | None, list[int]] = {}
    domains: set[str] = set()
    for record in passing:
        if artifact := record.artifact:
            release = find_first_release(artifact.opset_imports.get("", 0), artifact.ir_version)
            opsets.setdefault(release, []).append(record.cell.opset)
            domains.update(domain for domain in artifact.opset_imports if domain)
    unknown = opsets.pop(None, [])
    texts = [f"no known release ({_format_opsets(unknown)})"] if unknown else []
    known = {release: group for release, group in opsets.items() if release}
    if known:
        first, last = min(known), max(known)
        every = [opset for group in known.values() for opset in group]
        texts.insert(0, _format_since(last, every if unknown else ()))
        if first != last:
            texts.insert(0, _format_since(first, known[first]))
    kernels = f", with kernels of {', '.join(sorted(domains))}" if domains and texts else ""
    return "; ".join(texts) + kernels


def _format_since(release: Release, opsets: Sequence[int]) -> str:
    suffix = f" ({_format_opsets(opsets)})" if opsets else ""
    return f"{format_release(release)} and later{suffix}"


def _format_opsets(opsets: Sequence[int]) -> str:
    return f"opset{'s' if len(set(opsets)) > 1 else ''} {format_opsets(opsets)}"


def _describe_axes(spec: ModelSpec, passing: Sequence[Record]) -> tuple[str, ...]:
    """Return the promised sizes of each axis, and the sizes that were proved on all files."""
    texts = []
    for axis in spec.axes:
        if axis.example is None:
            continue
        proved = [_read_proved_sizes(axis, record) for record in passing if not record.proved_on]
        known = [sizes for sizes in proved if sizes is not None]
        limits = f"only at {axis.example}"
        if known and len(known) == len(proved):
            limits = f"{max(low for low, _ in known)} to {min(high for _, high in known)}"
        sizes = f"{'= ' if axis.rule else ''}{format_axis_sizes(axis)}"
        texts.append(f"{axis.name} {sizes}, proved {limits}")
    return tuple(texts) or ("fixed sizes",)


def _read_proved_sizes(axis: Axis, record: Record) -> tuple[int, int] | None:
    """Return the smallest and largest size that the check `axes` tried, or None."""
    texts = (result.metrics.get("proved", "") for result in record.checks if result.check == "axes")
    for text in texts:
        pattern = rf"(?:^|, ){re.escape(axis.name)} (\d+) to (\d+)(?:,|$)"
        if match := re.search(pattern, str(text)):
            return int(match[1]), int(match[2])
    return None


def build_tool_table(run: RunRecord) -> Row:
    """Return the versions of the tools that created the results."""
    by_suffix: dict[str, Mapping[str, str]] = {}
    for record in run.records:
        name = record.cell.device.suffix
        if name and (versions := extract_tool_versions(record.fingerprint)):
            by_suffix[name] = versions
    names = tuple(sorted(by_suffix))
    return {
        "toolchains": names,
        "rows": tuple(
            (tool, version, *(by_suffix[name].get(tool, version) for name in names))
            for tool, version in sorted(run.tools.items())
        ),
    }
