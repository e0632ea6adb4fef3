"""The manifests, and the devices that they promise.

In: the project's folder, the environment of workers. Out: findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.core.errors import ExporterError
from exporter.manifest import Manifest, load_project
from exporter.planning.plan import make_plan
from exporter.tools.doctor.client import ask
from exporter.tools.doctor.diagnosis import (
    Diagnosis,
    note,
    ok,
    problem,
)
from exporter.tools.doctor.protocol import Question


def examine_project(root: Path) -> tuple[Manifest | None, Diagnosis]:
    """Reads the manifests; None where they cannot be read."""
    try:
        manifest = load_project(root)
    except ExporterError as error:
        first, more = error.problems[0], len(error.problems) - 1
        rest = f" (and {more} more: `exporter check` lists them)" if more else ""
        return None, problem("manifests", f"{first}{rest}")
    models = len(manifest.models)
    if not models:
        return manifest, note("manifests", f"{manifest.project.manifests} declares no model")
    cells = len(make_plan(manifest).cells)
    return manifest, ok("manifests", f"{_counted(models, 'model')}, {_counted(cells, 'cell')}")


def examine_devices(manifest: Manifest, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Runs a small file on each device that a cell is promised on."""
    if not manifest.models:
        return
    cells = Counter(p.cell.device for p in make_plan(manifest).cells if not p.skip)
    for name, count in cells.items():
        answer = ask(Question(device=manifest.project.device(name)), environment)
        about = f"device {name}"
        if answer.ran_on:
            yield ok(about, f"{answer.ran_on} computes")
        else:
            are = "cell is" if count == 1 else "cells are"
            yield note(about, f"{count} {are} unavailable here: {answer.problem}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
