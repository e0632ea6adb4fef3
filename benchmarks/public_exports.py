"""Repeat docs/public-exports.md: `python -m benchmarks.public_exports FOLDER [NAME...]`.

Each script of a public repository is extracted at a commit into FOLDER/NAME, gets drawn weights and
the edits of its row, and runs with the torch of this environment. Exit code 1: an output lacks a
line that the page states. `--mirror DIR` clones `DIR/OWNER+NAME/repo` in place of GitHub.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Runs the file at two sizes of the batch, and prints its opset.
_BATCHES = """
import numpy, onnx, onnxruntime
print("opset", onnx.load("model.onnx", load_external_data=False).opset_import[0].version)
session = onnxruntime.InferenceSession("model.onnx")
for batch in (1, 2):
    image = numpy.random.rand(batch, 3, 112, 112).astype("float32")
    try:
        print("batch", batch, [each.shape for each in session.run(None, {"data": image})])
    except Exception as error:
        print("batch", batch, error)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicExport:
    """A script of a public repository, and what its run shows."""

    repository: str
    commit: str
    paths: tuple[str, ...]
    """The files and folders that the script needs."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """A file, a text in it, and the text in its place."""
    weights: str
    """The code that writes a checkpoint of drawn values."""
    commands: tuple[tuple[str, ...], ...]
    expected: tuple[str, ...]
    """Texts of the outputs."""


EXPORTS = {
    "insightface": PublicExport(
        repository="deepinsight/insightface",
        commit="7fadd420c2351d0ffa8cac403421c1a3ed733365",
        paths=("recognition/arcface_torch",),
        edits=(("recognition/arcface_torch/torch2onnx.py", "np.float)", "np.float64)"),),
        weights="""
import sys
sys.path.insert(0, "recognition/arcface_torch")
from backbones import get_model
model = get_model("r18", dropout=0.0, fp16=False, num_features=512)
torch.save(model.state_dict(), "weights.pth")
""",
        commands=(
            (
                *("-m", "exporter", "record", "--yes", "--", "python"),
                *("recognition/arcface_torch/torch2onnx.py", "weights.pth"),
                *("--network", "r18", "--output", "model.onnx"),
            ),
            ("-c", _BATCHES),
        ),
        expected=(
            "model.onnx: has opset 18, and the entry proves 11",
            "dimension 0 of input 'data' is dynamic ('None'), declared 1",
            "opset 18",
            "batch 1 [(1, 512)]",
            "Input shape:{2,512,7,7}, requested shape:{1,25088}",
        ),
    ),
    "yolox": PublicExport(
        repository="Megvii-BaseDetection/YOLOX",
        commit="6ddff4824372906469a7fae2dc3206c7aa4bbaee",
        paths=("yolox", "tools", "exps"),
        weights="""
import os, sys
sys.path.insert(0, os.getcwd())
from yolox.exp import get_exp
model = get_exp(None, "yolox-nano").get_model()
torch.save({"model": model.state_dict()}, "weights.pth")
""",
        commands=(
            (
                *("tools/export_onnx.py", "-n", "yolox-nano", "-c", "weights.pth"),
                *("--output-name", "model.onnx", "--dynamic", "--no-onnxsim"),
            ),
        ),
        expected=("module 'torch.onnx' has no attribute '_export'",),
    ),
    "retinaface": PublicExport(
        repository="biubug6/Pytorch_Retinaface",
        commit="b984b4b775b2c4dced95c1eadd195a5c7d32a60b",
        paths=("convert_to_onnx.py", "data", "layers", "models", "utils"),
        edits=(("data/config.py", "'pretrain': True", "'pretrain': False"),),
        weights="""
import os, sys
sys.path.insert(0, os.getcwd())
from data import cfg_mnet
from models.retinaface import RetinaFace
torch.save(RetinaFace(cfg=cfg_mnet, phase="test").state_dict(), "weights.pth")
""",
        commands=(("convert_to_onnx.py", "--trained_model", "weights.pth"),),
        expected=("module 'torch.onnx' has no attribute '_export'",),
    ),
    "modnet": PublicExport(
        repository="ZHKKKe/MODNet",
        commit="28165a451e4610c9d77cfdf925a94610bb2810fb",
        paths=("onnx", "src"),
        edits=(("onnx/export_onnx.py", ".cuda()", ""),),
        weights="""
import os, sys
sys.path.insert(0, os.getcwd())
from onnx.modnet_onnx import MODNet
model = torch.nn.DataParallel(MODNet(backbone_pretrained=False))
torch.save(model.state_dict(), "weights.pth")
""",
        commands=(
            (
                *("-m", "onnx.export_onnx", "--ckpt-path=weights.pth"),
                "--output-path=model.onnx",
            ),
        ),
        expected=("ModuleNotFoundError: No module named 'onnx.",),
    ),
}


def extract(export: PublicExport, folder: Path, mirror: Path | None) -> None:
    """Write the files of the commit into the new folder, with the edits."""
    url = f"https://github.com/{export.repository}"
    if mirror:
        url = str(mirror / export.repository.replace("/", "+") / "repo")
    clone = ("git", "clone", "-q", "--no-checkout", "--filter=blob:none", url, str(folder))
    subprocess.run(clone, check=True)
    checkout = ("git", "-C", str(folder), "checkout", "-q", export.commit, "--", *export.paths)
    subprocess.run(checkout, check=True)
    for name, before, after in export.edits:
        path = folder / name
        path.write_text(path.read_text("utf-8").replace(before, after), "utf-8")


def run(export: PublicExport, folder: Path) -> str:
    """Write the weights, run the commands and return what they print."""
    weights = f"import torch\ntorch.manual_seed(7)\n{export.weights}"
    output = ""
    for arguments in (("-c", weights), *export.commands):
        words = (sys.executable if each == "python" else each for each in ("python", *arguments))
        result = subprocess.run(
            tuple(words),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)} if arguments[0] != "-m" else None,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output += result.stdout
    return output


def main() -> int:
    """Run the exports with the given names, or all, and print the expected texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *EXPORTS], default=[])
    parser.add_argument("--mirror", type=Path)
    options = parser.parse_args()
    missing = 0
    for name in options.names or EXPORTS:
        folder = options.folder.resolve() / name
        extract(EXPORTS[name], folder, options.mirror)
        output = run(EXPORTS[name], folder)
        (folder / "output.txt").write_text(output, "utf-8")
        for text in EXPORTS[name].expected:
            found = text in output
            missing += not found
            sys.stdout.write(f"{name}: {'as stated' if found else 'NOT SHOWN'}: {text}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
