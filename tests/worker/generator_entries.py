"""The entries that `exporter add` writes for a tiny model that generates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.commands.recording.entry import format_generator, format_interface, name_part
from exporter.commands.recording.sources import Source
from exporter.manifest import Manifest, ModelSpec, load_project
from exporter.worker.model.generation import measure_interface
from tests.unit.manifest.projects import make_project


def load_entries(folder: Path, model: Any, spec: ModelSpec) -> Manifest:
    """Return the entries of all parts of a model, in a project in the folder."""
    measured = measure_interface(model, spec)
    parts = measured["parts"]
    files = {
        "manifests/nets.py": "def net(): ...\n",
        "manifests/net.toml": format_generator("net", Source(text="nets.py:net"), measured, [18]),
    }
    for part in parts:
        name = f"manifests/{name_part('net', part, parts)}.interface.toml"
        files[name] = format_interface("net", measured, part)
    return load_project(make_project(folder, files))
