"""Measure a week of a team: the cells that everyday actions run, and those that need to run.

Input: nothing. Output: a `Section`. The repository has 24 small models in 8 modules of a package
with shared modules and a data file: 48 cells. Each action is undone by git afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figure import Figure, Section
from benchmarks.measure import ROOT, Failed, must, spend

EXPORTER = (sys.executable, "-m", "exporter")
_LAYERS = '''\
"""Layers that the models share."""

import torch
from torch import nn


class Block(nn.Module):
    """A linear layer with an activation."""

    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Attention(nn.Module):
    """A weight for each channel."""

    def __init__(self, width=4):
        super().__init__()
        self.query = nn.Linear(width, width)

    def forward(self, x):
        return x * torch.softmax(self.query(x), dim=-1)


class Norm(nn.Module):
    """A norm over the channels."""

    def forward(self, x):
        return x / (x.abs().sum(-1, keepdim=True) + 1.0)


class Gate(nn.Module):
    """A gate for each channel."""

    def forward(self, x):
        return x * torch.sigmoid(x)
'''
_UTILS = '''\
"""Functions that some models share."""

import json
from pathlib import Path


def scale(x):
    return x * 2.0


def shift(x):
    return x + 1.0


def read(name):
    return json.loads((Path(__file__).parent / name).read_text())
'''
_MODULES = ("vision", "text", "audio", "graph", "heads", "tabular", "series", "ranking")
_MODULE = '''\
"""Models for {name}."""

import torch
from torch import nn

from acme.layers import {layers}
{imports}

class First(nn.Module):
    """The first model."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential({first})

    def forward(self, x):
        return {result}


class Second(nn.Module):
    """The second model."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential({second})

    def forward(self, x):
        return self.layers(x) + {number}.0


class Third(Second):
    """The third model."""

    def forward(self, x):
        return super().forward(x) * 0.5
'''
_ENTRY = """
[models.{name}-{model}]
source = "acme.{name}:{type}"
inputs = [{{ name = "x", shape = ["batch", 4] }}]
outputs = [{{ name = "y", shape = ["batch", 4] }}]
"""
_SETTINGS = '[project]\nname = "acme"\nversion = "1.0"\n\n[tool.exporter]\n'


def write_repository(root: Path) -> None:
    """Create the repository and commit it."""
    package, manifests = root / "acme", root / "manifests"
    for folder in (package, manifests):
        folder.mkdir(parents=True)
    (root / "pyproject.toml").write_text(_SETTINGS, encoding="utf-8")
    (root / ".gitignore").write_text("build/\n__pycache__/\n", encoding="utf-8")
    (package / "__init__.py").write_text('"""Models of acme."""\n', encoding="utf-8")
    (package / "layers.py").write_text(_LAYERS, encoding="utf-8")
    (package / "utils.py").write_text(_UTILS, encoding="utf-8")
    (package / "tabular.json").write_text("[3.0]\n", encoding="utf-8")
    for number, name in enumerate(_MODULES):
        special = number % 3 == 0
        text = _MODULE.format(
            name=name,
            number=number,
            layers="Attention, Block, Gate, Norm" if special else "Block, Gate, Norm",
            imports="from acme.utils import read, scale, shift\n" if number in (0, 4, 5) else "",
            first="Block(), Attention()" if number == 0 else "Block(), Gate()",
            second="Block(), Norm()",
            result={
                0: "scale(self.layers(x))",
                4: "shift(self.layers(x))",
                5: 'self.layers(x) * read("tabular.json")[0]',
            }.get(number, "self.layers(x)"),
        )
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    for number in range(3):
        entries = "".join(
            _ENTRY.format(name=name, model=model.lower(), type=model)
            for name in _MODULES[number::3]
            for model in ("First", "Second", "Third")
        )
        head = "format = 1\n\n[defaults]\nopsets = [17, 18]\n"
        (manifests / f"part{number}.toml").write_text(head + entries, encoding="utf-8")
    _run_git(root, "init", "-q")
    _commit(root)


def _run_git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    subprocess.run([shutil.which("git") or "git", *who, *words], cwd=root, check=True)


def _commit(root: Path) -> None:
    _run_git(root, "add", ".")
    _run_git(root, "commit", "-qm", "state")


@dataclass(frozen=True, slots=True)
class Action:
    """An everyday action, and the cells whose file or verdict it can change."""

    what: str
    needed: int
    before: str
    """The cells that ran before the dependencies were exact."""
    edit: Callable[[Path], object]
    variables: Mapping[str, str] = field(default_factory=dict)
    is_exported: bool = False
    """Export after the action, instead of a plan: for the cost."""


def _write(name: str, text: str = "") -> Callable[[Path], object]:
    def edit(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return edit


def _replace(name: str, before: str, after: str) -> Callable[[Path], object]:
    def edit(root: Path) -> None:
        text = (root / name).read_text(encoding="utf-8")
        if before not in text:
            raise Failed(f"{name} has no '{before}'")
        (root / name).write_text(text.replace(before, after), encoding="utf-8")

    return edit


def _add_model(root: Path) -> None:
    model = (root / "acme/text.py").read_text(encoding="utf-8")
    (root / "acme/added.py").write_text(model, encoding="utf-8")
    entry = _ENTRY.format(name="added", model="first", type="First")
    manifest = f"format = 1\n\n[defaults]\nopsets = [17, 18]\n{entry}"
    (root / "manifests/added.toml").write_text(manifest, encoding="utf-8")


def _add_device(root: Path) -> None:
    device = '[tool.exporter.devices.plain]\nruntime = "onnxruntime"\n'
    device += 'providers = ["CPUExecutionProvider"]\n'
    device += 'session_options.graph_optimization_level = "ORT_DISABLE_ALL"\n'
    _replace("pyproject.toml", "[tool.exporter]\n", f"[tool.exporter]\n{device}")(root)
    _set_devices(root, "plain")


def _set_devices(root: Path, name: str) -> None:
    for path in sorted((root / "manifests").glob("part*.toml")):
        opsets = "opsets = [17, 18]\n"
        _replace(str(path), opsets, f'{opsets}devices = ["cpu", "{name}"]\n')(root)


def _absent_device(root: Path) -> None:
    _set_devices(root, "cuda")
    must(spend([*EXPORTER, "export", "-q"], root))


def _move_manifest(root: Path) -> None:
    (root / "manifests/vision").mkdir()
    (root / "manifests/part0.toml").rename(root / "manifests/vision/part0.toml")


ACTIONS = (
    Action("nothing", 0, "0", lambda _: None, is_exported=True),
    Action("new module in the package", 0, "48", _write("acme/scratch.py")),
    Action("conftest.py in the root", 0, "48", _write("conftest.py")),
    Action("setup.py in the root", 0, "48", _write("setup.py")),
    Action("lock file of an editor", 0, "48", _write("acme/.#layers.py")),
    Action("a new model as a module", 2, "50", _add_model, is_exported=True),
    Action("a package for a module", 18, "48", _write("acme/utils/__init__.py", _UTILS)),
    Action(
        "docstring of a shared module", 0, "48", _replace("acme/layers.py", "A gate", "The gate")
    ),
    Action("a function that one model calls", 2, "18", _replace("acme/utils.py", "2.0", "2.5")),
    Action(
        "a layer that one model uses", 2, "48", _replace("acme/layers.py", "self.query(x)", "-x")
    ),
    Action("data that one model reads", 2, "2", _write("acme/tabular.json", "[4.0]\n")),
    Action("a manifest in another folder", 0, "22", _move_manifest),
    Action(
        "another name of an entry",
        2,
        "2",
        _replace("manifests/part0.toml", "[models.vision-first]", "[models.vision]"),
        is_exported=True,
    ),
    Action("PYTHONPATH=.", 0, "48", lambda _: None, {"PYTHONPATH": f"{ROOT}{os.pathsep}."}),
    Action("TORCH_LOGS", 0, "48", lambda _: None, {"TORCH_LOGS": "+export"}),
    Action("rm -rf build", 0, "48", lambda root: shutil.rmtree(root / "build"), is_exported=True),
    Action("another device for all models", 48, "48", _add_device, is_exported=True),
    Action("again, with a device that is absent", 0, "48", _absent_device, is_exported=True),
)


def measured(place: Path, *, quick: bool) -> Section:
    """Measure all actions; `quick`: only those without an export."""
    root = place / "acme"
    write_repository(root)
    first = must(spend([*EXPORTER, "export"], root), "48 cells: 48 pass")
    _commit(root)
    figures = [Figure(what="first export", measured=f"48 cells, {first.cpu:.1f} s CPU")]
    for action in ACTIONS:
        if quick and action.is_exported:
            continue
        action.edit(root)
        plan = must(spend([*EXPORTER, "plan", "--json"], root, action.variables))
        actions = [cell["action"] for cell in json.loads(plan.output)["cells"]]
        count = sum(each in ("run", "recheck") for each in actions)
        said = f"{count} run, {action.needed} needed; before {action.before}"
        if rechecks := actions.count("recheck"):
            said += f"; {rechecks} of them prove the existing file"
        if action.is_exported:
            spent = spend([*EXPORTER, "export"], root, action.variables)
            said += f"; export {spent.cpu:.1f} s CPU"
        is_met = None if quick else count == action.needed
        figures.append(Figure(what=action.what, measured=said, aim=str(action.needed), met=is_met))
        _run_git(root, "checkout", "-q", ".")
        _run_git(root, "clean", "-fdq")
    about = "Cells that an export runs after each action, cells that can change, and the cost."
    return Section(name="week", about=about, figures=figures)
