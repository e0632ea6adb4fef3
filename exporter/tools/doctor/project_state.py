"""The manifests and the devices that they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from exporter.core.errors import ExporterError
from exporter.core.text import format_bytes, pluralize
from exporter.environments.inventory import list_environments
from exporter.manifest import Manifest, Project, load_project
from exporter.pipeline.device_environments import (
    list_garbage,
    locate_environment,
    locate_environments,
)
from exporter.planning.plan import make_plan
from exporter.tools.doctor.client import run_probe
from exporter.tools.doctor.protocol import Diagnosis, ProbeRequest


def examine_project(root: Path) -> tuple[Manifest | None, Diagnosis]:
    """Load the manifests.

    Returns:
        The manifests, or None if they are invalid, and the diagnosis.
    """
    try:
        manifest = load_project(root, keep_invalid=True)
    except ExporterError as error:
        return None, _diagnose_problems([str(problem) for problem in error.problems])
    problems = [str(problem) for problem in manifest.problems]
    problems += [text for spec in manifest.models for text in spec.problems]
    if problems:
        return manifest, _diagnose_problems(problems)
    models = len(manifest.models)
    if not models:
        message = f"{manifest.project.manifests} declares no model"
        return manifest, Diagnosis.note("manifests", message)
    cells = len(make_plan(manifest).cells)
    message = f"{pluralize(models, 'model')}, {pluralize(cells, 'cell')}"
    return manifest, Diagnosis.ok("manifests", message)


def _diagnose_problems(problems: Sequence[str]) -> Diagnosis:
    first, more = problems[0], len(problems) - 1
    rest = f" (and {more} more: `exporter check` lists them)" if more else ""
    return Diagnosis.problem("manifests", f"{first}{rest}")


def examine_environments(project: Project) -> Iterator[Diagnosis]:
    """List the environments of runtimes and toolchains, and whether they were created."""
    sizes = {
        each.key: each.measure_size() for each in list_environments(project.environments_folder)
    }
    for environment in project.environments:
        located = locate_environment(project, environment)
        size = sizes.get(environment.definition.key, 0)
        if located.interpreter:
            message = f"{located.runtime_versions} ({format_bytes(size)})"
        else:
            message = f"{', '.join(environment.requirements)}: not created yet"
        yield Diagnosis.ok(f"environment {environment.name}", message)
    for toolchain in project.toolchains:
        size = sizes.get(toolchain.definition.key, 0)
        state = format_bytes(size) if size else "not created yet"
        message = f"{', '.join(toolchain.requirements)} ({state})"
        yield Diagnosis.ok(f"toolchain {toolchain.name}", message)
    if garbage := list_garbage(project):
        message = f"{pluralize(len(garbage), 'environment')} not declared; `exporter gc` removes it"
        yield Diagnosis.note("environments", message)


def examine_devices(manifest: Manifest, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Run a small file on each device of the manifests."""
    if not manifest.models:
        return
    cells = Counter(p.cell.device for p in make_plan(manifest).cells if not p.skip)
    project = locate_environments(manifest.project)
    for name, count in cells.items():
        device = project.find_device(name)
        if device.toolchain:
            message = f"runs with the packages of the toolchain {device.toolchain.name}"
            yield Diagnosis.ok(f"device {name}", message)
            continue
        if device.environment and not device.environment.interpreter:
            message = f"the next export creates its environment, {device.environment.name}"
            yield Diagnosis.ok(f"device {name}", message)
            continue
        response = run_probe(ProbeRequest(device=device), environment)
        if response.provider:
            yield Diagnosis.ok(f"device {name}", f"{response.provider} works")
        else:
            unavailable = f"{pluralize(count, 'cell')} unavailable: {response.problem}"
            yield Diagnosis.note(f"device {name}", unavailable)
