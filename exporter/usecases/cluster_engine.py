"""Create the engine that runs jobs on a Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from exporter.cache.fingerprint import read_tool_parts
from exporter.cache.search_path import read_search_path
from exporter.manifest import EngineSettings, Project
from exporter.manifest.resolved.store import NO_STORE, is_remote
from exporter.pipeline import BuildFolder
from exporter.pipeline.cluster.connection import connect, require_dask
from exporter.pipeline.cluster.dask_engine import DaskEngine
from exporter.pipeline.cluster.host_environment import split_python_path
from exporter.pipeline.cluster.host_folder import hash_content
from exporter.pipeline.cluster.project_tree import list_project
from exporter.pipeline.cluster.protocol import RunContext
from exporter.processes.environment import list_shared_variables

_PYTHON_PATH = "PYTHONPATH"


def make_cluster_engine(
    project: Project,
    settings: EngineSettings,
    environment: Mapping[str, str],
    on_note: Callable[[str], None],
    jobs: int,
) -> DaskEngine:
    """Return the engine.

    Args:
        project: The project.
        settings: The scheduler, or the function that returns a cluster, or neither.
        environment: The variables of this process.
        on_note: Receives messages for the user.
        jobs: The parallel jobs of a cluster on this machine.

    Raises:
        ExporterError: ENVIRONMENT if Dask is missing.
    """
    require_dask(settings)
    return DaskEngine(
        partial(connect, settings, Path(project.root), settings.workers or jobs),
        partial(_make_context, project, environment),
        on_note,
        jobs,
    )


def _make_context(
    project: Project,
    environment: Mapping[str, str],
    is_local: bool,
) -> tuple[RunContext, dict[str, Path | bytes]]:
    """Return the context of a run, and the files of the project by their digests."""
    root = Path(project.root).resolve()
    build = BuildFolder.from_project(project).path.resolve()
    files: dict[str, Path | bytes] = {}
    digest = ""
    if not is_local:
        tree = list_project(root, _list_skipped(project, build))
        text = tree.to_json(indent=None).encode()
        digest = hash_content(text)
        files = {file.sha256: root / file.name for file in tree.files} | {digest: text}
    is_inside = build.is_relative_to(root)
    python_path = environment.get(_PYTHON_PATH, "")
    context = RunContext(
        run=f"exporter-{uuid.uuid4().hex[:12]}",
        root=str(root),
        build=build.relative_to(root).as_posix() if is_inside else str(build),
        tree=digest,
        tools=read_tool_parts(),
        search_path=read_search_path(root, python_path),
        variables=list_shared_variables(environment, project.environment),
        patterns=project.environment,
        python_path=split_python_path(root, python_path),
    )
    return context, files


def _list_skipped(project: Project, build: Path) -> list[Path]:
    """Return the folders of output, which no model reads."""
    skipped = [build, Path(project.root).resolve() / project.build]
    if project.store not in ("", NO_STORE) and not is_remote(project.store):
        skipped.append((Path(project.root) / Path(project.store).expanduser()).resolve())
    return skipped
