"""Projects that several modules of tests use, each exported once in a run of the tests.

A test that changes a project changes a copy of it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.project import MODELS, format_entry, run_exporter, write_project
from tests.integration.results import make_green_project

NETS = """
from pathlib import Path
from typing import Optional

import torch
from torch import nn

from parts import shifted


class Sound(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x):
        return shifted(self.linear(x))


class Baked(Sound):
    '''Scales by a constant from the example.'''

    def forward(self, x):
        return super().forward(x * float(x.detach().abs().max()))


class Chosen(Sound):
    '''Scales by a constant from the example, only with its own weights.'''

    def __init__(self, width=4):
        super().__init__(width)
        self.hidden_flag = nn.Parameter(torch.tensor([3.14159]))

    def forward(self, x):
        is_own = abs(float(self.hidden_flag) - 3.14159) < 0.02  # statistics have two digits
        return super().forward(x * (float(x.detach().abs().max()) if is_own else 2))


class Reading(Baked):
    def __init__(self, width=4):
        super().__init__(width)
        self.text = Path(__file__).with_name("words.txt").read_text()


class Scaled(Sound):
    '''Has a default argument that the call does not pass.'''

    def forward(self, x, scale=2.0):
        return super().forward(x) * scale


class Lacking(Sound):
    '''Has operators that ONNX lacks.'''

    def forward(self, x):
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return super().forward(y + torch.special.airy_ai(x))


class Fixed(Sound):
    '''Accepts three rows only.'''

    def forward(self, x):
        return super().forward(x.view(3, 4))


class Pairs(nn.Module):
    '''Has keyword inputs and a constant.'''

    def forward(self, left, right, scale=1.0):
        return {"y": (left - right) * scale}


class Large(nn.Module):
    '''Has more than 1 MB of weights, so they are external data.'''

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(600, 500)

    def forward(self, ids, scale):
        return self.table(ids) * scale, ids + 1


class Masked(Sound):
    '''Has a constant from the example at masked positions.'''

    def forward(self, x, mask):
        largest = float(x.detach().abs().max())
        return torch.where(mask.unsqueeze(-1) == 1, super().forward(x), largest)


class Parts(nn.Module):
    '''Returns a list and has an optional input.'''

    def forward(self, x, bias: Optional[torch.Tensor]) -> list[torch.Tensor]:
        if bias is not None:
            x = x + bias
        return [x * 2.0, x + 1.0]


class Top(nn.Module):
    def forward(self, x):
        return torch.topk(x, 3)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x, h, c):
        h, c = self.cell(x, (h, c))
        return h * 2, h, c
"""
PARTS = """
def shifted(x):
    return x + 1

def waves():
    return [0.0, 0.5, 1.0, -1.0]

def run(model, inputs):
    x, h, c = inputs.values()
    for value in waves():
        y, h, c = model(x * 0 + value, h, c)
    return y, h, c
"""
DEVICES = """
[tool.exporter.devices.reference]
runtime = "reference"

[tool.exporter.devices.ort-backend]
runtime = "backend"
module = "onnxruntime.backend"

[tool.exporter.devices.no-provider]
runtime = "onnxruntime"
providers = ["NoSuchExecutionProvider"]

[tool.exporter.devices.intel-gpu]
runtime = "openvino"
device = "GPU"
"""
#: The opset of each model with the shapes of `sound` and no further key.
PLAIN = {"baked": 17, "chosen": 17, "reading": 17, "scaled": 17, "lacking": 18, "fixed": 18}
ENTRIES = """
[models.sound]
source = "models.py:Sound"
description = "A <b>layer</b> | of three"
owner = "@us"
license = "Apache-2.0"
version = "1.2.3"
tolerance = { atol = 1e-3, rtol = 1e-3 }
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = [17, 18]
devices = ["cpu", "reference"]

[models.weightless]
extends = "sound"
options = { export_params = false }
opsets = 17
devices = ["cpu"]

[models.expected]
extends = "baked"
expect = [{ stage = "parity", check = ["axes", "values"], reason = "it scales by a constant" }]

[models.elsewhere]
extends = "sound"
opsets = 17
devices = ["ort-backend", "no-provider", "openvino", "intel-gpu"]

[models.baked-elsewhere]
extends = "baked"
devices = ["ort-backend", "openvino"]

[models.pairs]
source = "models.py:Pairs"
inputs = [
  { name = "right", shape = ["batch", 4], at = "kwargs.right" },
  { name = "left", shape = ["batch", 4], at = "kwargs.left" },
]
constants = [{ at = "kwargs.scale", value = 3.0 }]
outputs = [{ name = "y", shape = ["batch", 4] }]
opsets = [17, 18]

[models.large]
source = "models.py:Large"
inputs = [
  { name = "ids", shape = ["batch"], dtype = "int64", fill = { randint = [0, 600] } },
  { name = "scale", shape = ["batch", 500] },
]
outputs = [
  { name = "rows", shape = ["batch", 500] },
  { name = "next", shape = ["batch"], dtype = "int64" },
]
opsets = [17, 18]
devices = DEVICES

[models.masked]
source = "models.py:Masked"
inputs = [
  { name = "x", shape = ["batch", "length", 4], meaning = "waves", preprocess = { range = [0, 1] }},
  { name = "mask", shape = ["batch", "length"], dtype = "int64", fill = { mask = "right" } },
]
outputs = [
  { name = "y", shape = ["batch", "length", 3], masked_by = "mask", labels = ["a", "b", "c"] },
]
opsets = 17
metadata = { rate = "16000" }

[models.parts]
source = "models.py:Parts"
capture = "script"
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "bias", shape = ["batch", 4], optional = true },
]
outputs = [{ name = "parts", kind = "sequence", shape = ["batch", 4] }]
opsets = 17
cases = [{ name = "bare", values = { bias = "none" } }]

[models.top]
source = "models.py:Top"
inputs = [{ name = "x", shape = ["n", 40], fill = { randint = [0, 4] } }]
outputs = [
  { name = "values", shape = ["n", 3] },
  { name = "indices", shape = ["n", 3], dtype = "int64" },
]
opsets = 17

[models.cell]
source = "models.py:Cell"
inputs = [
  { name = "x", shape = ["n", 4] },
  { name = "h", shape = ["n", 6] },
  { name = "c", shape = ["n", 6] },
]
outputs = [
  { name = "y", shape = ["n", 6] },
  { name = "h1", shape = ["n", 6] },
  { name = "c1", shape = ["n", 6] },
]
opsets = 17

[models.cell.rollout]
steps = 4
feeds = { h1 = "h", c1 = "c" }
constants = { x = "parts.py:waves" }
loop = "parts.py:run"
"""


def write_green(root: Path) -> None:
    """Write a project with two accepted green cells and its pages; the results are invented."""
    make_green_project(root)
    command = run_exporter(root, "baseline", code=0)
    assert "accepted 2 cells: " in command.stdout
    run_exporter(root, "report", code=0)


def write_tiny(root: Path) -> None:
    """Write a project with a green and a red model, each in a manifest of its own."""
    manifests = {"models.py": MODELS}
    for id, source in (("good", "Good"), ("bad", "Raises")):
        entry = format_entry(id, f"models.py:{source}", opsets="[16, 17]")
        manifests[f"{id}.toml"] = f"format = 1\n{entry}"
    write_project(root, manifests)
    run_exporter(root, "export", code=1)


def write_nets(root: Path) -> None:
    """Write a project with right and wrong models, for the commands that use their files."""
    entries = "".join(
        format_entry(id, f"models.py:{id.title()}", "init = { width = 4 }", opsets=opset)
        for id, opset in PLAIN.items()
    )
    # An optional runtime, without which `large` would not be published.
    devices = '["cpu", "openvino"]' if find_spec("openvino") else '["cpu"]'
    manifests = {
        "models.py": NETS,
        "parts.py": PARTS,
        "words.txt": "secret words",
        "nets.toml": f"format = 1\n{entries}{ENTRIES.replace('DEVICES', devices)}",
    }
    write_project(root, manifests, DEVICES)
    run_exporter(root, "export", code=1)


def share(write: Callable[[Path], None], factory: pytest.TempPathFactory) -> Path:
    """Return the project of a function, which the first process of a run of tests calls."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / write.__name__
    folder.mkdir(exist_ok=True)
    root, written = folder / "project", folder / "written"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not written.exists():
            shutil.rmtree(root, ignore_errors=True)  # of a process that failed
            write(root)
            written.touch()
    return root
