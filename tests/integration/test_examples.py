"""The projects of `docs/examples` are green, as its pages promise."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import ROOT, read_cells, run_exporter

EXAMPLES = ROOT / "docs" / "examples"
HAS_PILLOW = bool(importlib.util.find_spec("PIL"))
#: A row of `tests/features/extensions.py` compiles and proves it.
UNCOMPILED = "custom_operator_cpp/18/cpu"
CELLS = {
    "alexnet/18/cpu",
    "custom_operator_onnxscript/18/cpu",
    "custom_operator_symbolic/17/cpu",
    "decoder_cache/18/cpu",
    "lstm/17/cpu",
    "mixed_tracing/17/cpu",
    "super_resolution/18/cpu",
    "transformer_encoder/18/cpu",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples") / "project"
    shutil.copytree(EXAMPLES, root, ignore=shutil.ignore_patterns("build", "reports", "__*"))
    return root


@pytest.fixture(scope="module")
def exported(project: Path) -> subprocess.CompletedProcess[str]:
    return run_exporter(project, "export", *sorted(CELLS), UNCOMPILED)


@pytest.mark.campaign
def test_a_picture_goes_in_and_a_larger_one_comes_out(project: Path, exported: object) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")
    folder, target = project / "manifests" / "super_resolution", project / "large.png"
    file = project / "build" / "super_resolution" / "18.onnx"
    script = [sys.executable, str(folder / "enlarge.py"), str(file)]
    command = [*script, str(folder / "house.png"), str(target)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    assert 20 < float(ended.stdout.split()[1]) < 40, "the enlarged picture shows its source"
    with image.open(folder / "house.png") as small:
        width, height = small.size
    with image.open(target) as large:
        assert large.size == (3 * width, 3 * height)


@pytest.mark.campaign
def test_one_cell_of_each_example_is_green(
    exported: subprocess.CompletedProcess[str], project: Path
) -> None:
    records = read_cells(project)
    uncompiled = records.pop(UNCOMPILED)
    message = "not compiled; run compile_library.py beside snake.cpp"
    assert (uncompiled.status, message in uncompiled.message) == (Status.ERROR, True)
    status = {name: record.status for name, record in records.items()}
    expected = dict.fromkeys(CELLS, Status.PASS)
    if not HAS_PILLOW:
        expected["super_resolution/18/cpu"] = Status.ERROR
        assert "needs the package Pillow" in records["super_resolution/18/cpu"].message
    assert status == expected, exported.stdout + exported.stderr


def test_every_example_has_a_page_and_is_in_the_index() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("manifests/*/*.toml")}
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(manifests/(\w+)/README\.md\)", index)) == folders
    for folder in folders:
        page = EXAMPLES / "manifests" / folder / "README.md"
        for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page}: {link}"
