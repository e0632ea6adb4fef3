"""Projects to measure: one with prepared results, and one with models of this project.

Input: a directory and a size. Output: a project in it, as a user would have it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import tomlkit

from benchmarks.measure import ROOT
from exporter.cache.states import hash_source, read_package_state
from exporter.checks.protocol import hash_sample
from exporter.jobs import JobFolder, Reference, Sample, write_json
from exporter.manifest import load_project
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import RecordValidator
from exporter.planning.plan import PlannedCell, make_plan
from exporter.records.record import (
    Artifact,
    CheckResult,
    Record,
    Source,
    Status,
)

#: Models of one manifest, each in its own file.
_PER_FILE = 50
_MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)
"""
_ENTRY = """
[models.{id}]
source = "{id}.py:Net"
inputs = [{{ name = "x", shape = ["batch", 4] }}]
outputs = [{{ name = "y", shape = ["batch", 3] }}]
opsets = "{opsets}"
"""
_SAMPLES = 10
_CHECKS = ("opset", "wellformed", "signature", "placement", "determinism", "power", "parity")
#: Packages that a worker of a small model has loaded, as in records.
_PACKAGES = ("sympy", "jinja2", "networkx", "typing_extensions", "pydantic", "click", "filelock")


def made_project(root: Path, models: int, opsets: str = "9..18") -> int:
    """Create a project of tiny models with valid records and files. Return the number of cells.

    The models are real ones: a cell that runs is exported.
    """
    (root / "manifests").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n", encoding="utf-8")
    for first in range(0, models, _PER_FILE):
        ids = [f"net{number}" for number in range(first, min(first + _PER_FILE, models))]
        write_models(root, ids, opsets)
    manifest_of = load_project(root)
    judge = RecordValidator(manifest_of)
    build = BuildFolder.from_project(manifest_of.project)
    plan = make_plan(manifest_of)
    listing = hash_source(root / "manifests/*.py")
    packages = {name: read_package_state(name) for name in _PACKAGES}
    for spec in manifest_of.models:
        _write_reference(build.model_folder(spec.id))
    for planned in plan.cells:
        record = _record(planned, root, listing).model_copy(
            update={
                "fingerprint": judge.fingerprints.get_cell_parts(planned.cell),
                "packages": packages,
            }
        )
        folder = build.model_folder(planned.cell.model)
        write_json(folder.record(planned.cell), record)
        folder.model(planned.cell.opset).write_bytes(_content(planned))
    return len(plan.cells)


def _write_reference(folder: JobFolder) -> None:
    """Write as many samples as a model with one dynamic axis has."""
    samples = []
    for index in range(_SAMPLES):
        files = folder.sample(index)
        files.mkdir(parents=True)
        for name in ("input_0.pb", "output_0.pb"):
            (files / name).write_bytes(f"{name} {index}".encode() * 8)
        samples.append(
            Sample(
                index=index,
                name=f"batch={index + 2}",
                kind="axis",
                axes={"batch": index + 2},
                sha256=hash_sample(files),
            )
        )
    reference = Reference(samples=tuple(samples), noise=(1e-7,), output_spread=(1.0,))
    folder.reference.write_text(reference.to_json(), encoding="utf-8")


def write_models(root: Path, ids: Sequence[str], opsets: str) -> None:
    """Write a manifest of tiny models, each in its own file."""
    (root / "manifests").mkdir(parents=True, exist_ok=True)
    entries = "".join(_ENTRY.format(id=id, opsets=opsets) for id in ids)
    manifest = root / f"manifests/from-{ids[0]}.toml"
    manifest.write_text(f"format = 1\n{entries}", encoding="utf-8")
    for id in ids:
        (root / f"manifests/{id}.py").write_text(_MODEL, encoding="utf-8")


def _content(planned: PlannedCell) -> bytes:
    return str(planned.cell).encode() * 100


def _record(planned: PlannedCell, root: Path, listing: str) -> Record:
    """Return a green record with the fields of a real one of this model."""
    cell, content = planned.cell, _content(planned)
    source = f"manifests/{cell.model}.py"
    sources = {source: hash_source(root / source), "manifests/*.py": listing}
    return Record(
        cell=cell,
        status=Status.PASS,
        route=planned.route,
        artifact=Artifact(
            file=f"{cell.model}/{cell.opset}.onnx",
            sha256=hashlib.sha256(content).hexdigest(),
            bytes=len(content),
            ir_version=8,
            opset_imports={"": cell.opset},
            nodes=1,
            parameters=15,
            operators={"Gemm": 1},
        ),
        checks=tuple(
            CheckResult(check=name, status=Status.PASS, metrics={"max_abs": 1e-7, "of_limit": 0.1})
            for name in _CHECKS
        ),
        sources=tuple(Source(file=file, state=sha256) for file, sha256 in sources.items()),
        seconds={"source": 0.1, "convert": 0.5},
    )


def matrix_project(root: Path, models: Sequence[str], opsets: str) -> None:
    """Create a project with some models at full size, on the CPU only."""
    place = root / "manifests"
    shutil.copytree(
        ROOT / "manifests/models", place / "models", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "pyproject.toml").write_text("[tool.exporter]\n", encoding="utf-8")
    chosen = tomlkit.document()
    chosen["format"] = 1
    models_table = tomlkit.table(is_super_table=True)
    text = (ROOT / "benchmarks/full_size.toml").read_text(encoding="utf-8")
    known = tomlkit.parse(text).unwrap()["models"]
    for id in models:
        models_table[id] = {**known[id], "opsets": opsets}
    chosen["models"] = models_table
    (place / "matrix.toml").write_text(tomlkit.dumps(chosen), encoding="utf-8")
