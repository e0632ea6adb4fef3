"""The support of a model's files by runtimes: opsets, releases and sizes of axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.cache.fingerprint import extract_tool_versions
from exporter.core.known_names import (
    RUNTIMES,
    SOFTWARE,
    Release,
    find_first_release,
    format_release,
)
from exporter.manifest import Axis, Manifest, ModelSpec
from exporter.manifest.syntax.versions import format_opsets
from exporter.records.record import Record, RunRecord
from exporter.report.rows.cells import Cell, Row
from exporter.report.rows.contract import format_axis_sizes

_FIXED = "fixed sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSupport:
    """The support of one model on devices with equal results."""

    model: str
    devices: tuple[str, ...]
    opsets: str
    """The opsets with all promises proved: `9..13, 15`; empty if there are none."""
    loads: str
    """The releases of ONNX Runtime that load the files, by opset and IR version."""
    proved_with: str
    """`ONNX Runtime 1.31.1`; empty if the results do not contain the tool."""
    axes: tuple[str, ...]
    """`batch 1 and up, proved 1 to 7`, for each dynamic axis of the inputs."""


def summarize_support(spec: ModelSpec, cells: Iterable[Cell]) -> tuple[str, str, str]:
    """Return the model, the releases of ONNX Runtime that load its files, and its axes."""
    passing = [cell.record for cell in cells if cell.record and cell.is_pass]
    by_opset = {record.cell.opset: record for record in passing}
    axes = _describe_axes(spec, passing) if passing else ()
    return spec.id, _describe_releases(by_opset.values()), "; ".join(axes)


def build_support_rows(
    spec: ModelSpec, cells: Sequence[Cell], manifest: Manifest, tools: Mapping[str, str]
) -> tuple[RuntimeSupport, ...]:
    """Return one row for devices of a model with equal results."""
    devices: dict[RuntimeSupport, list[str]] = {}
    for device in dict.fromkeys(cell.id.device for cell in cells):
        passing = [
            cell.record
            for cell in cells
            if cell.id.device == device and cell.record and cell.is_pass
        ]
        row = RuntimeSupport(
            model=spec.id,
            devices=(),
            opsets=format_opsets(record.cell.opset for record in passing),
            loads=_describe_releases(passing),
            proved_with=_format_runtime(manifest, passing[0], tools) if passing else "",
            axes=_describe_axes(spec, passing) if passing else (),
        )
        devices.setdefault(row, []).append(device)
    return tuple(replace(row, devices=tuple(group)) for row, group in devices.items())


def _format_runtime(manifest: Manifest, record: Record, tools: Mapping[str, str]) -> str:
    settings = manifest.project.find_device(record.cell.device)
    known_runtime = RUNTIMES.get(settings.runtime)
    name = (known_runtime and known_runtime.title) or settings.module or settings.runtime
    tool = known_runtime.package if known_runtime else ""
    if record.runtime:
        versions = record.runtime_packages
        plugin = settings.provider_library.partition(":")[0].replace("_", "-")
        text = f"{name} {versions.get(tool, '')}".strip() if tool else record.runtime
        text += f", {plugin} {versions[plugin]}" if plugin in versions else ""
        is_software = any(each.metrics.get("hardware") == SOFTWARE for each in record.checks)
        return f"{text} ({SOFTWARE})" if is_software else text
    # A package that is no tool of every cell is a dependency of the record.
    loaded = record.packages.get(tool, "").split(" ")[0]
    has_toolchain = bool(record.cell.device.toolchain)
    known = {**tools, **extract_tool_versions(record.fingerprint)} if has_toolchain else tools
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
    axes = (_describe_axis(axis, passing) for axis in spec.axes if axis.example is not None)
    return tuple(axes) or (_FIXED,)


def _describe_axis(axis: Axis, passing: Iterable[Record]) -> str:
    """Return the promised sizes of an axis, and the sizes that were proved on all files."""
    proved = [_read_proved_sizes(axis, record) for record in passing if not record.proved_on]
    known = [sizes for sizes in proved if sizes is not None]
    text = f"{axis.name} {'= ' if axis.rule else ''}{format_axis_sizes(axis)}"
    if not known or len(known) < len(proved):
        return f"{text}, proved only at {axis.example}"
    low, high = max(low for low, _ in known), min(high for _, high in known)
    return f"{text}, proved {low} to {high}"


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
    by_toolchain: dict[str, Mapping[str, str]] = {}
    for record in run.records:
        name = record.cell.device.toolchain
        if name and (versions := extract_tool_versions(record.fingerprint)):
            by_toolchain[name] = versions
    names = tuple(sorted(by_toolchain))
    return {
        "toolchains": names,
        "rows": tuple(
            (tool, version, *(by_toolchain[name].get(tool, version) for name in names))
            for tool, version in sorted(run.tools.items())
        ),
    }
