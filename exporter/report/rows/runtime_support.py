"""What somebody who runs the files can rely on: opsets, releases of the runtime, sizes of axes.

In: a model's `Cell`s and its `Manifest`. Out: `RuntimeSupport` rows. Cells that do not pass promise
nothing here, a failure that was foreseen neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.core import onnxruntime_releases as support
from exporter.manifest import Axis, Manifest, ModelSpec
from exporter.records.record import Record
from exporter.report.rows.cells import Cell
from exporter.report.rows.contract import format_axis_sizes
from exporter.report.rows.opset_groups import fold_opsets

#: What a runtime is called, and the tool whose version says which one it was.
_RUNTIMES = {
    "onnxruntime": ("ONNX Runtime", "onnxruntime"),
    "openvino": ("OpenVINO", "openvino"),
    "reference": ("onnx.reference", "onnx"),
}
_FIXED = "fixed sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSupport:
    """Where a model's files run."""

    model: str
    devices: tuple[str, ...]
    """Those of which the rest holds."""
    opsets: str
    """At which every promise was proved: `9-13,15`; empty where at none."""
    loads: str
    """The releases of ONNX Runtime that load these files, by opset and IR version."""
    proved_with: str
    """`ONNX Runtime 1.31.1`; empty where no tool of that name is recorded."""
    axes: tuple[str, ...]
    """`batch 1 and up, proved 1 to 7`, for each dynamic axis of the inputs."""


def build_support_rows(
    spec: ModelSpec, cells: Sequence[Cell], manifest: Manifest, tools: Mapping[str, str]
) -> tuple[RuntimeSupport, ...]:
    """One row for the devices of a model that are alike.

    Args:
        spec: The contract.
        cells: The model's cells.
        manifest: Knows which runtime a device is.
        tools: Versions, as `RunRecord.tools`.
    """
    rows: dict[RuntimeSupport, list[str]] = {}
    for device in dict.fromkeys(cell.id.device for cell in cells):
        passing = [
            cell.record
            for cell in cells
            if cell.id.device == device and cell.record and cell.is_pass
        ]
        row = _support(spec, passing, _proved_with(manifest, device, tools))
        rows.setdefault(row, []).append(device)
    return tuple(replace(row, devices=tuple(alike)) for row, alike in rows.items())


def _support(spec: ModelSpec, passing: Sequence[Record], proved_with: str) -> RuntimeSupport:
    axes = tuple(_axis(axis, passing) for axis in spec.axes if axis.example is not None)
    return RuntimeSupport(
        model=spec.id,
        devices=(),
        opsets=fold_opsets(record.cell.opset for record in passing),
        loads=_loads(passing),
        proved_with=proved_with if passing else "",
        axes=(axes or (_FIXED,)) if passing else (),
    )


def _proved_with(manifest: Manifest, device: str, tools: Mapping[str, str]) -> str:
    known = manifest.project.find_device(device)
    name, tool = _RUNTIMES.get(known.runtime, (known.module, ""))
    version = tools.get(tool, "missing") if tool else ""
    return "" if version == "missing" else f"{name} {version}".strip()


def _loads(passing: Iterable[Record]) -> str:
    """The first release that loads one of the files, and the first that loads them all."""
    opsets: dict[support.Release | None, list[int]] = {}
    domains: set[str] = set()
    for record in passing:
        if artifact := record.artifact:
            release = support.find_first_release(
                artifact.opset_imports.get("", 0), artifact.ir_version
            )
            opsets.setdefault(release, []).append(record.cell.opset)
            domains.update(domain for domain in artifact.opset_imports if domain)
    unknown = opsets.pop(None, [])
    said = [f"no release that is known ({_opsets(unknown)})"] if unknown else []
    if opsets:
        first, last = min(opsets, key=_order), max(opsets, key=_order)
        everything = [opset for alike in opsets.values() for opset in alike]
        said.insert(0, _release(last, everything if unknown else ()))
        if first != last:
            said.insert(0, _release(first, opsets[first]))
    kernels = f", with kernels of {', '.join(sorted(domains))}" if domains and said else ""
    return "; ".join(said) + kernels


def _order(release: support.Release | None) -> support.Release:
    return release or (0, 0)


def _release(release: support.Release | None, opsets: Sequence[int]) -> str:
    of = f" ({_opsets(opsets)})" if opsets else ""
    return f"{support.format_release(_order(release))} and later{of}"


def _opsets(opsets: Sequence[int]) -> str:
    return f"opset{'s' if len(set(opsets)) > 1 else ''} {fold_opsets(opsets)}"


def _axis(axis: Axis, passing: Iterable[Record]) -> str:
    """What is promised of an axis, and the sizes that every one of these files was tried at."""
    proved = [_proved(axis, record) for record in passing]
    known = [sizes for sizes in proved if sizes is not None]
    said = f"{axis.name} {format_axis_sizes(axis)}"
    if not known or len(known) < len(proved):
        return f"{said}, proved at {axis.example} alone"
    low, high = max(low for low, _ in known), min(high for _, high in known)
    return f"{said}, proved {low} to {high}"


def _proved(axis: Axis, record: Record) -> tuple[int, int] | None:
    """From where to where the check of the axes tried this one."""
    texts = (result.metrics.get("proved", "") for result in record.checks if result.check == "axes")
    for text in texts:
        if found := re.search(rf"(?:^|, ){re.escape(axis.name)} (\d+) to (\d+)(?:,|$)", str(text)):
            return int(found[1]), int(found[2])
    return None
