"""What a job does once for all opsets changes no file: each is the one of the public call.

In CI the quick models at one opset each, another one from model to model; `PUBLIC=all`, as in
`nox -s public`, takes all models at every opset that dynamo has a cell at.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.manifest import ModelSpec, load_project
from tests.integration.public_files import ROOT

#: Those opsets at which the manifests have cells of dynamo; `auto` takes it from 18 on.
DYNAMO = (18, 19, 20, 21)
MODELS = [spec for spec in load_project(ROOT).models if spec.exporter != "torchscript"]
EVERY = os.environ.get("PUBLIC") == "all"
#: Half a minute each and more; others have their operators too.
SLOW = {
    *("alexnet", "vgg11", "resnet18", "densenet121", "inception_v3"),
    *("mobilenet_v3_small", "squeezenet1_1", "lstm_bidirectional"),
}


def written(who: str, spec: ModelSpec, folder: Path, opsets: list[int]) -> dict[str, bytes]:
    folder.mkdir()
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.public_files"),
            *(who, spec.id, str(folder)),
            *map(str, opsets),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=600,
    )
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_there_are_models_to_compare() -> None:
    assert len(MODELS) > 10
    assert all(set(DYNAMO) <= set(spec.opsets) for spec in MODELS)


def cases() -> Iterator[object]:
    slow = pytest.mark.skipif(not EVERY, reason="slow; see `nox -s public`")
    for spec in MODELS:
        yield pytest.param(spec, marks=slow if spec.id in SLOW else (), id=spec.id)


@pytest.mark.parametrize("spec", list(cases()))
def test_a_file_of_a_job_is_that_of_the_public_call(spec: ModelSpec, tmp_path: Path) -> None:
    chosen = DYNAMO if EVERY else (DYNAMO[MODELS.index(spec) % len(DYNAMO)],)
    made = written("ours", spec, tmp_path / "ours", sorted({DYNAMO[-1], *chosen}, reverse=True))
    refused = made.pop("failure.txt", b"").decode()
    for opset in chosen:
        # A process for each: torch captures some models only once in a process.
        public = written("public", spec, tmp_path / f"public-{opset}", [opset])
        # What torch refuses, we refuse.
        assert bool(public.pop("failure.txt", b"")) == bool(refused)
        assert not refused or refused == "capture"
        assert f"{opset}.onnx" in public or refused
        for name, content in public.items():
            assert made[name] == content, name
