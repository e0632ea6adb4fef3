"""The build folder and the store: whole, of today, and how large.

In: the manifests, the store. Out: findings.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from exporter.build import BuildFolder, RecordValidator, Stored
from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.fingerprint import tool_versions
from exporter.cache.store import Store
from exporter.core.errors import ExporterError
from exporter.core.resources import size_text
from exporter.manifest import Manifest
from exporter.planning.plan import Plan, make_plan
from exporter.records.record import read_run
from exporter.tools.doctor.diagnosis import (
    Diagnosis,
    note,
    ok,
    problem,
)

_MIB = 1 << 20


def examine_build(manifest: Manifest, today: date) -> Iterator[Diagnosis]:
    """Holds every result against the project of today, and its files against the result."""
    build = BuildFolder.of(manifest.project)
    if build.path.is_symlink():
        yield problem(
            "build", f"{build.path.name} is a link: what is built is never written through one"
        )
        return
    if not build.path.is_dir():
        yield ok("build", f"there is no {manifest.project.build} yet")
        return
    if manifest.models:
        yield from _results(make_plan(manifest), Stored(build), RecordValidator(manifest, today))
    if build.results.exists():
        yield _tools(build.results)


def examine_store(store: Store | None) -> Diagnosis:
    """Where it is, what it holds, and whether it can be written."""
    if store is None:
        return note("store", "off: what was made on another branch is made again")
    limit = size_text(store.limits.size)
    place = f"{store.path}, at most {limit}"
    parent = next(path for path in (store.path, *store.path.parents) if path.exists())
    if not parent.is_dir():
        return problem("store", f"{store.path}: {parent} is no folder, so that nothing is kept")
    if not (store.is_read_only or os.access(parent, os.W_OK)):
        return note("store", f"{place}: cannot be written, so that it is only read")
    if not store.path.exists():
        return ok("store", f"{place}: nothing is kept yet")
    size = store.size()
    held = f"{place}: {size / _MIB:.1f} MiB taken by results: {store.count()}"
    return ok("store", f"{held}, only read" if store.is_read_only else held)


def _results(plan: Plan, stored: Stored, judge: RecordValidator) -> Iterator[Diagnosis]:
    intact = ArtifactVerifier(stored.path)
    damaged: dict[str, str] = {}
    stale: dict[str, str] = {}
    never = holds = 0
    for planned in plan.to_run:
        name, record = str(planned.cell), stored.of(planned.cell)
        if record is None and stored.is_damaged(planned.cell):
            damaged[name] = stored.why_none(planned.cell)
        elif record is None:
            never += 1
        elif reason := judge.why_stale(record):
            stale[name] = reason
        elif record.artifact and (reason := intact.problem(record.artifact)):
            damaged[name] = reason
        else:
            holds += 1
    counts = f"{holds} of {len(plan.to_run)} results hold"
    more = f"; {never} of the others were never made" if never else ""
    is_whole = holds == len(plan.to_run)
    yield ok("build", counts) if is_whole else note("build", f"{counts}{more}")
    if stale:
        yield note("build", f"of another time: {len(stale)}: {_commonest(stale)}")
    if damaged:
        which = f"damaged, to be made again by the next export: {len(damaged)}"
        yield problem("build", f"{which}: {_commonest(damaged)}")


def _commonest(reasons: dict[str, str]) -> str:
    """The reason that most cells have, with one of them; and how many have others."""
    [(reason, count)] = Counter(reasons.values()).most_common(1)
    cell = next(name for name, why in reasons.items() if why == reason)
    others = len(reasons) - count
    return f"{reason} ({cell})" + (f", and {others} for other reasons" if others else "")


def _tools(path: Path) -> Diagnosis:
    """Whether the results were made with what is installed."""
    try:
        run = read_run(path)
    except ExporterError as error:
        return problem("results", str(error.problems[0]))
    here = tool_versions()
    moved = [
        f"{name} {before} -> {here[name]}"
        for name, before in run.tools.items()
        if here.get(name, before) != before
    ]
    if moved:
        return note("results", f"were made with other tools: {', '.join(moved)}")
    return ok("results", "were made with the tools that are installed here")
