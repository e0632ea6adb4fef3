"""Small projects on disk: manifests from the test data or from text, and sources to refer to."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from exporter.manifest import Manifest, ModelSpec, load_project

DATA = Path(__file__).parents[2] / "data" / "manifests"

#: Parsed by the loader and never run; kept as text, because one of them is no Python.
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
    """A project with the sources above and `files`; `settings` is the text of pyproject.toml."""
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
    """A project from the test data: one manifest, or a folder of a whole project."""
    make_project(root)
    if case.is_file():
        shutil.copy(case, root / "manifests" / case.name)
        return root
    shutil.copytree(case, root, dirs_exist_ok=True)
    settings = root / "project.toml"  # not named pyproject.toml, so that no tool reads it
    if settings.exists():
        settings.rename(root / "pyproject.toml")
    return root


def load(root: Path, text: str, **files: str) -> Manifest:
    """The manifest of a project whose one file begins with `format = 1`."""
    return load_project(make_project(root, {"manifests/net.toml": f"format = 1\n{text}"}))


def load_model(root: Path, keys: str = "", entry: str = ENTRY) -> ModelSpec:
    """One model: the entry above with more keys."""
    return load(root, f"[models.net]\n{entry}{keys}").find_model("net")
