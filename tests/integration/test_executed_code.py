"""A cell depends on the functions that ran, wherever torch or Python ran or read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.lasting_server import timeless
from tests.integration.project import format_entry, read_cells, run_exporter, write_project

MODELS = '''
import torch
from torch import nn

from layers import *


class Plain(nn.Module):
    """A model with {docstring}."""

    def forward(self, x):
        return scale(x)


class Traced(nn.Module):
    def forward(self, x):
        return in_trace(x) if torch.jit.is_tracing() else x * 2.0


class Strict(nn.Module):
    def forward(self, x):
        return in_capture(x) if torch.compiler.is_dynamo_compiling() else x * 2.0


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 1000.0, large, small, (x,))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = torch.jit.script(scripted)

    def forward(self, x):
        return self.function(x)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Identity()
        self.linear.register_forward_hook(hook)

    def forward(self, x):
        return self.linear(x)


class Custom(nn.Module):
    def forward(self, x):
        return Square.apply(x)


class Red(nn.Module):
    def forward(self, x):
        raise RuntimeError("no")
'''
LAYERS = """
import torch


def scale(x):
    return x * 2.0


def unused(x):
    return x * 2.0


def in_trace(x):
    return x * 2.0


def in_capture(x):
    return x * 2.0


def large(x):
    return x * 2.0


def small(x):
    return x * 2.0


def hook(module, args, output):
    return output * 2.0


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2.0

    @staticmethod
    def backward(context, gradient):
        return gradient * 2.0
"""
SCRIPTED = """
import torch


def scripted(x):
    return x * 2.0
"""
CELLS = {
    "plain": ("Plain", 18, ""),
    "traced": ("Traced", 17, ""),
    "strict": ("Strict", 18, 'capture = "strict"'),
    "branches": ("Branches", 18, ""),
    "scripted": ("Scripted", 17, ""),
    "hooked": ("Hooked", 18, ""),
    "custom": ("Custom", 17, ""),
    "red": ("Red", 17, ""),
    "absent": ("Plain", 18, 'devices = ["cpu", "absent"]'),
}
#: A device that no machine has.
SETTINGS = """
[tool.exporter.devices.absent]
runtime = "onnxruntime"
providers = ["MIGraphXExecutionProvider"]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after its first export."""
    root = tmp_path_factory.mktemp("executed") / "project"
    entries = "".join(
        format_entry(name, f"models.py:{type_}", more, opsets=opset, x="2, 4", y="2, 4")
        for name, (type_, opset, more) in CELLS.items()
    )
    write_project(root, {"all.toml": f"format = 1\n{entries}"}, SETTINGS)
    write_sources(root)
    export = run_exporter(root, "export")
    assert "8 pass, 1 error, 1 unavailable" in export.stdout, export.stdout
    return root


def write_sources(root: Path, name: str = "", before: str = "", after: str = "") -> None:
    models = f"from scripted import scripted\n{MODELS.format(docstring='a docstring')}"
    texts = {"models.py": models, "layers.py": LAYERS, "scripted.py": SCRIPTED}
    assert before in texts.get(name, "")
    for file, text in texts.items():
        edited = text.replace(before, after, 1) if file == name else text
        (root / "manifests" / file).write_text(edited)


def read_results(root: Path) -> dict[str, object]:
    """Return each record without its times."""
    records = read_cells(root).items()
    return {cell: timeless(record.model_dump(mode="json")) for cell, record in records}


def list_stale(root: Path) -> set[str]:
    plan = run_exporter(root, "plan", code=0)
    lines = plan.stdout.splitlines()
    return {line.partition("/")[0] for line in lines if " run " in line or " recheck " in line}


#: Dynamo reads functions that it does not run, so all functions count. It opens the files of those
#: in other modules.
DYNAMO = {"strict", "branches"}


#: Code that an edit multiplies by 3, and the cells that it makes stale.
MULTIPLIED = [
    ("layers.py", "def unused(x):\n    return", set()),
    ("layers.py", "def scale(x):\n    return", {"plain", "absent"}),
    ("layers.py", "def in_trace(x):\n    return", {"traced"}),
    ("layers.py", "def in_capture(x):\n    return", set()),
    ("layers.py", "def large(x):\n    return", set()),
    ("layers.py", "args, output):\n    return", {"hooked"}),
    ("layers.py", "context, x):\n        return", {"custom"}),
    ("layers.py", "gradient):\n        return", set()),
    ("scripted.py", "def scripted(x):\n    return", {"scripted"}),
]


@pytest.mark.parametrize(
    ("name", "before", "after", "stale"),
    [
        ("models.py", "a docstring", "other words", set()),
        ("layers.py", "import torch\n", "import torch  # a comment\n\n\n", DYNAMO),
        ("scripted.py", "import torch\n", "import torch  # a comment\n", {"scripted"}),
        *((name, code, f"{code} 3 *", stale) for name, code, stale in MULTIPLIED),
    ],
)
def test_an_edit_runs_the_cells_whose_code_it_changes(
    project: Path, name: str, before: str, after: str, stale: set[str]
) -> None:
    write_sources(project, name, before, after)
    # The text of each file that a red cell loaded counts.
    assert list_stale(project) == stale | {"red"} | (DYNAMO if "3 *" in after else set())


def test_a_cell_that_was_kept_equals_one_that_ran(project: Path) -> None:
    write_sources(project, "layers.py", "import torch\n", "import torch\n\n# a comment\n")
    cells = sorted(CELLS.keys() - list_stale(project))
    assert cells == ["absent", "custom", "hooked", "plain", "scripted", "traced"]
    kept = {path: path.read_bytes() for path in (project / "build").glob("*/*.onnx")}
    records = read_results(project)
    run_exporter(project, "export", "--force", *cells, code=0)
    assert {path: path.read_bytes() for path in kept} == kept
    forced = read_results(project)
    assert forced == {cell: records[cell] for cell in forced}
