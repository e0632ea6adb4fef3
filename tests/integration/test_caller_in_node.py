"""The program of docs/recipes.md in Node is right, and without its softmax it is red."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.project import ROOT, read_cells, run_exporter, write_project

PAGE = (ROOT / "docs/recipes.md").read_text("utf-8").partition("### A program in Node")[2]
(PROGRAM,) = re.findall(r"```js\n(.*?)```", PAGE.partition("\n### ")[0], re.DOTALL)
#: An export of this repository installs it for the device `web`.
PACKAGES = sorted(ROOT.glob("build/.environments/*/node_modules/onnxruntime-web"))

NETS = """
import json
from pathlib import Path

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, image):
        return self.head(self.conv(image).relu().mean((2, 3)))


def predict(model, sample):
    pixels = torch.tensor(json.loads(Path(sample).read_text()), dtype=torch.float32)
    with torch.no_grad():
        return {"scores": model((pixels / 255).permute(2, 0, 1)[None]).softmax(1)[0].numpy()}
"""
ENTRY = """
format = 1

[models.net]
source = "nets.py:Net"
inputs = [{ name = "image", shape = ["batch", 3, 8, 8], fill = { uniform = [0, 1] } }]
outputs = [{ name = "logits", shape = ["batch", 5] }]
opsets = 18

[[models.net.callers]]
command = ["node", "infer.mjs", "{model}", "{sample}"]
reference = "nets.py:predict"
samples = "data/*.json"

[models.without_softmax]
extends = "net"

[[models.without_softmax.callers]]
command = ["node", "logits.mjs", "{model}", "{sample}"]
reference = "nets.py:predict"
samples = "data/*.json"
"""


@pytest.mark.skipif(not PACKAGES, reason="no export of this clone installed onnxruntime-web")
@pytest.mark.skipif(not shutil.which("node"), reason="runs Node")
def test_the_program_in_node_is_right_and_its_missing_softmax_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, {"nets.py": NETS, "net.toml": ENTRY})
    folder = tmp_path / "manifests"
    (folder / "node_modules").symlink_to(PACKAGES[0].parent)
    (folder / "infer.mjs").write_text(PROGRAM)
    scores = "powers.map((p) => p / sum)"
    assert scores in PROGRAM
    (folder / "logits.mjs").write_text(PROGRAM.replace(scores, "Array.from(logits.data)"))
    (folder / "data").mkdir()
    for number in range(3):
        rows = [
            [[(number * 91 + 7 * y + 31 * x + c) % 256 for c in range(3)] for x in range(8)]
            for y in range(8)
        ]
        (folder / f"data/{number}.json").write_text(json.dumps(rows))
    run_exporter(tmp_path, "export", code=1)
    cells = read_cells(tmp_path)
    assert cells["net/18/cpu"].status == "pass", cells["net/18/cpu"].message
    message = cells["without_softmax/18/cpu"].message
    assert "result.scores is 'logits', and PyTorch's is the softmax of 'logits'" in message
