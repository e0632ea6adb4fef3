"""The wheel works without the checkout: it contains the templates, the guide and the schema."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from email import message_from_bytes
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = ["install", "-q", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True)
    return folder / "site"


def find_links(page: str) -> list[str]:
    """Return the targets of all links and pictures of a page."""
    tokens = [token for block in MarkdownIt().parse(page) for token in block.children or []]
    targets = [token.attrGet("href") or token.attrGet("src") for token in tokens]
    return [str(target) for target in targets if target]


@pytest.mark.campaign
def test_the_links_of_the_description_work_without_the_checkout(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    message = message_from_bytes(metadata.read_bytes())
    links = find_links(str(message.get_payload()))
    readme = find_links((ROOT / "README.md").read_text("utf-8"))
    assert "reports/badge.svg" in readme
    version = re.escape(message["Version"])
    page = rf"https://github\.com/\w+/onnx-exporter-matrix/blob/v{version}/"
    picture = rf"https://raw\.githubusercontent\.com/\w+/onnx-exporter-matrix/v{version}/"
    for link, local in zip(links, readme, strict=True):
        place = picture if local.endswith(".svg") else page
        assert re.fullmatch(place, link.removesuffix(local)), link
        assert (ROOT / local).is_file(), link


@pytest.mark.campaign
def test_a_new_folder_becomes_a_gated_and_published_matrix(installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    place = run("-c", "import exporter; print(exporter.__file__)")
    assert Path(place.strip()).is_relative_to(installed)
    run("-m", "exporter", "init")
    assert "2 cells: 2 pass" in run("-m", "exporter", "export")
    run("-m", "exporter", "baseline")
    assert "2 as before" in run("-m", "exporter", "gate")
    run("-m", "exporter", "publish", "--initial", "example/18", "dist")
    assert len(list((tmp_path / "dist").rglob("*.onnx"))) == 1
    assert "E-axis-fixed" in run("-m", "exporter", "guide", "E-axis-fixed")
    assert '"models"' in run("-m", "exporter", "schema")
    run("-m", "exporter", "report", "--site", "site")
    assert (tmp_path / "site/index.html").stat().st_size > 10_000


#: A program of a user, and a mistake in it that only its types reveal.
PROGRAM = """import os
from pathlib import Path

from exporter.api import ExportOptions, Manifest, Selection, load_project, plan


def count_cells_to_run(root: Path) -> int:
    manifest: Manifest = load_project(root)
    options = ExportOptions(selection=Selection(patterns=("net/18",)))
    return len(plan(manifest, options, os.environ).decisions.to_run)
"""
MISTAKE = "\n\nload_project('a folder')\n"


@pytest.fixture(scope="module")
def python(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the wheel and its dependencies, and without the checkout."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    place = Path(sysconfig.get_path("purelib", "venv", paths))
    # Python does not read the .pth files of a folder that a .pth file names.
    (place / "wheel.pth").write_text(f"{installed}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin/python"


def check_types(python: Path, folder: Path, sources: dict[str, str]) -> str:
    """Return the report of `mypy --strict` about the files of a project."""
    for name, source in sources.items():
        (folder / name).write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    command += ["--cache-dir", str(python.parent), *sources]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr


def test_the_wheel_has_the_types_of_the_public_interface(python: Path, tmp_path: Path) -> None:
    examples = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL
    )
    sources = {f"example_{i}.py": example for i, example in enumerate(examples)}
    assert len(sources) >= 3  # a runtime, a report file and a command
    report = check_types(python, tmp_path, {"program.py": PROGRAM, **sources})
    assert report == f"Success: no issues found in {1 + len(sources)} source files\n"


def test_a_mistake_in_the_use_of_the_interface_is_found(python: Path, tmp_path: Path) -> None:
    report = check_types(python, tmp_path, {"program.py": PROGRAM + MISTAKE})
    assert 'Argument 1 to "load_project" has incompatible type "str"; expected "Path"' in report
