"""The build folder and the store: size, damage and stale results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.fingerprint import read_tool_versions
from exporter.cache.store import Store
from exporter.core.errors import ExporterError
from exporter.core.files import describe_owner, list_inaccessible
from exporter.core.text import format_byte_limit, format_bytes
from exporter.manifest import Manifest
from exporter.pipeline import BuildFolder, RecordValidator, StoredRecords
from exporter.planning.plan import make_plan
from exporter.records.record import CellId, read_run
from exporter.tools.doctor.protocol import Diagnosis


def examine_build(manifest: Manifest, today: date) -> Iterator[Diagnosis]:
    """Compare each result with the project and each artifact with its record."""
    build = BuildFolder.from_project(manifest.project)
    if build.path.is_symlink():
        message = f"{build.path.name} is a symlink: build output is never written through one"
        yield Diagnosis.problem("build", message)
    elif not build.path.is_dir():
        yield Diagnosis.ok("build", f"there is no {manifest.project.build} yet")
    else:
        if paths := list(list_inaccessible(build.path)):
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            message = f"{paths[0]}{more}: cannot be read or changed{describe_owner(paths[0])}"
            yield Diagnosis.problem("build", message)
        if manifest.models:
            yield from _examine_records(manifest, build, today)
        if build.results.exists():
            yield _compare_tools(build.results)


def examine_store(store: Store | None) -> Diagnosis:
    """Return the path and the size of the store, and whether it can be written."""
    if store is None:
        return Diagnosis.note("store", "off: results of other branches are built again")
    summary = f"{store.path}, at most {format_byte_limit(store.limits.size)}"
    parent = next(path for path in (store.path, *store.path.parents) if path.exists())
    if not parent.is_dir():
        message = f"{store.path}: {parent} is not a folder, so no result is stored"
        return Diagnosis.problem("store", message)
    if not (store.is_read_only or os.access(parent, os.W_OK)):
        return Diagnosis.note("store", f"{summary}: read-only, because it cannot be written")
    if not store.path.exists():
        return Diagnosis.ok("store", f"{summary}: empty")
    summary += f": {format_bytes(store.measure_size())}, {store.count()} results"
    return Diagnosis.ok("store", f"{summary}, read-only" if store.is_read_only else summary)


def examine_remote(store: Store | None) -> Iterator[Diagnosis]:
    """Yield whether the remote store can be read, if there is one."""
    if store and store.remote:
        remote = store.remote
        if problem := remote.test_access():
            yield Diagnosis.problem("remote", f"{remote.label}: cannot be read: {problem}")
        else:
            mode = ", read-only" if remote.is_read_only else ""
            trust = "signed entries only" if remote.has_key else "entries are not signed"
            yield Diagnosis.ok("remote", f"{remote.label}: can be read; {trust}{mode}")


def _examine_records(manifest: Manifest, build: BuildFolder, today: date) -> Iterator[Diagnosis]:
    stored, validator = StoredRecords(build), RecordValidator(manifest, today)
    verifier = ArtifactVerifier(build.path)
    damaged: dict[CellId, str] = {}
    stale: dict[CellId, str] = {}
    missing = valid = 0
    cells = [planned.cell for planned in make_plan(manifest).to_run]
    for cell in cells:
        record = stored.get(cell)
        if record is None and stored.is_damaged(cell):
            damaged[cell] = stored.find_missing_reason(cell)
        elif record is None:
            missing += 1
        elif reason := validator.find_staleness_reason(record):
            stale[cell] = reason
        elif reason := verifier.find_record_problem(record):
            damaged[cell] = reason
        else:
            valid += 1
    message = f"{valid} of {len(cells)} results are up to date"
    message += f"; {missing} do not exist yet" if missing else ""
    yield (Diagnosis.ok if valid == len(cells) else Diagnosis.note)("build", message)
    if stale:
        yield Diagnosis.note("build", f"stale: {len(stale)}: {_format_most_common(stale)}")
    if damaged:
        count = f"damaged, rebuilt by the next export: {len(damaged)}"
        yield Diagnosis.problem("build", f"{count}: {_format_most_common(damaged)}")


def _format_most_common(reasons: dict[CellId, str]) -> str:
    """Return the most common reason with one of its cells, and the number of other cells."""
    [(common, count)] = Counter(reasons.values()).most_common(1)
    cell = next(cell for cell, reason in reasons.items() if reason == common)
    others = len(reasons) - count
    return f"{common} ({cell})" + (f", and {others} for other reasons" if others else "")


def _compare_tools(path: Path) -> Diagnosis:
    """Compare the tools of the results with the installed ones."""
    try:
        run = read_run(path)
    except ExporterError as error:
        return Diagnosis.problem("results", str(error.problems[0]))
    installed = read_tool_versions()
    changes = [
        f"{name} {before} -> {installed[name]}"
        for name, before in run.tools.items()
        if installed.get(name, before) != before
    ]
    if changes:
        return Diagnosis.note("results", f"built with other tools: {', '.join(changes)}")
    return Diagnosis.ok("results", "built with the installed tools")
