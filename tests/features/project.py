"""Create the project of a row and export it."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.core.files import write_text
from exporter.jobs import JobFolder, OpsetJob
from exporter.manifest import Manifest, ModelSpec, load_project
from exporter.planning.plan import choose_route
from exporter.records.record import Record, read_run
from tests.features.entry import manifest_text
from tests.features.feature import MODEL, Feature, Proof
from tests.integration.project import run_exporter
from tests.traps.prove import export

MODELS = Path(__file__).parent / "models"


def write_project(feature: Feature, root: Path) -> None:
    """Write pyproject.toml, manifest and model files of a row."""
    manifests = root / "manifests"
    shutil.copytree(MODELS, manifests, ignore=shutil.ignore_patterns("__*"))
    write_text(root / "pyproject.toml", f"[tool.exporter]\n{feature.project}\n")
    write_text(manifests / "net.toml", manifest_text(feature))
    if feature.prepare is not None:
        feature.prepare(manifests)


def prove(feature: Feature, root: Path) -> Proof:
    """Write the project of a row and export it.

    Raises:
        ExporterError: The manifest is refused.
    """
    write_project(feature, root)
    manifest = load_project(root)
    records = (
        _by_command(manifest, root)
        if feature.by_command
        else _in_process(manifest, root, diagnose=feature.is_diagnosed)
    )
    return Proof(folder=root / "build" / MODEL, records=tuple(records))


def _by_command(manifest: Manifest, root: Path) -> Iterator[Record]:
    ended = run_exporter(root, "export")
    results = root / manifest.project.build / "results.json"
    if not results.is_file():
        raise AssertionError(ended.stdout + ended.stderr)
    yield from read_run(results).records


def _in_process(manifest: Manifest, root: Path, *, diagnose: bool) -> Iterator[Record]:
    """Run the real worker in this process, which saves the import of torch."""
    for spec in manifest.models:
        folder = root / manifest.project.build / spec.id
        with _unload_modules(root):
            opsets = _opsets(manifest, spec)
            export(spec, folder, root=root, opsets=opsets, diagnose=diagnose)
        yield from JobFolder(folder).read_records().values()


def _opsets(manifest: Manifest, spec: ModelSpec) -> tuple[OpsetJob, ...]:
    devices = tuple(manifest.project.find_device(name) for name in spec.devices)
    return tuple(
        OpsetJob(opset=opset, route=choose_route(spec, opset), devices=devices)
        for opset in spec.opsets
    )


@contextmanager
def _unload_modules(root: Path) -> Iterator[None]:
    """Remove the modules of the project, because the next one has files of the same names."""
    path = list(sys.path)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        prefix = f"{root}{os.sep}"  # a path for each of thousands of modules would take 0.1 s
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(prefix):
                del sys.modules[name]
