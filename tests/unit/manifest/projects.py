"""Create small projects from the test data or from text, with sources."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from exporter.manifest import Manifest, ModelSpec, load_project

DATA = Path(__file__).parents[2] / "data" / "manifests"

#: The loader parses these and never runs them. One of them is not valid Python.
_SOURCES = {
    "vision.py": """
from somewhere import Imported as Renamed
from somewhere.models import Backbone

if True:

    class AlexNet:
        pass

else:
    AlexNet = Backbone

first, (second, *rest) = Renamed, (Backbone, AlexNet)
annotated: type = AlexNet

try:
    import fast.kernels
except ImportError as problem:
    fallback = problem


def build(width=64):
    inner = AlexNet
    return inner


def make(shape, dtype, generator):
    return None
""",
    "broken.py": '"""Has a syntax error on line 4."""\n\n\nclass Broken(:\n    pass\n',
    "star.py": "from somewhere import *\n",
    "lazy.py": "def __getattr__(name):\n    return name\n",
}

ENTRY = """\
source = "models/vision.py:AlexNet"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = "9..21"
"""


def make_project(root: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a project with the sources above and `files`."""
    sources = root / "manifests" / "models"
    sources.mkdir(parents=True, exist_ok=True)
    for name, text in _SOURCES.items():
        (sources / name).write_text(text, encoding="utf-8")
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def copied_project(root: Path, case: Path) -> Path:
    """Copy a project from the test data: one manifest, or the folder of a project."""
    make_project(root)
    if case.is_file():
        shutil.copy(case, root / "manifests" / case.name)
        return root
    shutil.copytree(case, root, dirs_exist_ok=True)
    settings = root / "project.toml"  # other tools would read a pyproject.toml
    if settings.exists():
        settings.rename(root / "pyproject.toml")
    return root


def load(root: Path, text: str, **files: str) -> Manifest:
    """Load a project with one manifest, and prepend `format = 1`."""
    return load_project(make_project(root, {"manifests/net.toml": f"format = 1\n{text}"}))


def load_model(root: Path, keys: str = "", entry: str = ENTRY) -> ModelSpec:
    """Load one model: the entry above with more keys."""
    return load(root, f"[models.net]\n{entry}{keys}").find_model("net")
