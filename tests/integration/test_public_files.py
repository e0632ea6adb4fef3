"""The steps that a job shares between opsets do not change a file.

Each file is equal to the file of the public call. By default the test exports two models at one
opset each. If `PUBLIC=all` is set, as in the session `public`, it exports all models at all opsets
of dynamo.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.manifest import ModelSpec, load_project
from tests.integration.public_files import ROOT

#: Opsets with dynamo cells in the manifests; `auto` selects dynamo from 18 on.
DYNAMO = (18, 19, 20, 21)
MODELS = [
    spec
    for spec in load_project(ROOT).models
    if spec.exporter != "torchscript"
    and "full-size" not in spec.tags
    and len(spec.opsets) > 1  # not the entry for a slow device
]
EVERY = os.environ.get("PUBLIC") == "all"
#: A branch, and attention that needs decompositions.
QUICK = ("branch_captured", "bert_mini")


@pytest.fixture(scope="module")
def exports() -> Iterator[subprocess.Popen[str]]:
    """Return a process that exports in a fork for each line; it has imported torch."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.integration.public_files"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
        yield process


def export_files(
    exports: subprocess.Popen[str], method: str, spec: ModelSpec, folder: Path, opsets: list[int]
) -> dict[str, bytes]:
    folder.mkdir()
    assert exports.stdin is not None
    assert exports.stdout is not None
    exports.stdin.write(shlex.join([method, spec.id, str(folder), *map(str, opsets)]) + "\n")
    exports.stdin.flush()
    assert exports.stdout.readline() == "0\n"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_manifests_have_models_for_the_comparison() -> None:
    assert len(MODELS) > 10
    assert all(set(DYNAMO) <= set(spec.opsets) for spec in MODELS)
    assert set(QUICK) <= {spec.id for spec in MODELS}


def list_parameters() -> Iterator[object]:
    for spec in MODELS:
        if EVERY or spec.id in QUICK:
            yield pytest.param(spec, id=spec.id)


@pytest.mark.parametrize("spec", list(list_parameters()))
def test_a_file_of_a_job_is_equal_to_the_file_of_the_public_call(
    spec: ModelSpec, exports: subprocess.Popen[str], tmp_path: Path
) -> None:
    opsets = DYNAMO if EVERY else (DYNAMO[MODELS.index(spec) % len(DYNAMO)],)
    ordered = sorted({DYNAMO[-1], *opsets}, reverse=True)
    files = export_files(exports, "job", spec, tmp_path / "job", ordered)
    failure = files.pop("failure.txt", b"").decode()
    for opset in opsets:
        # One process for each call, because torch captures some models only once in a process.
        public = export_files(exports, "public", spec, tmp_path / f"public-{opset}", [opset])
        # If the public call fails, the job fails too.
        assert bool(public.pop("failure.txt", b"")) == bool(failure)
        assert not failure or failure == "capture"
        assert f"{opset}.onnx" in public or failure
        for name, content in public.items():
            assert files[name] == content, name
