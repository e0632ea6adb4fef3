"""A chain runs the files of other entries and is compared with the whole."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.integration.project import (
    ROOT,
    read_cells,
    run_exporter,
    run_python,
    write_project,
)

PAGE = (ROOT / "docs/recipes.md").read_text("utf-8").partition("## A product of several files")[2]
NETS, ENTRIES, CAUSE = re.findall(r"```(?:python|toml|text)\n(.*?)```", PAGE, re.DOTALL)[:3]
OTHER_NETS = '''


class Branching(torch.nn.Module):
    """A trace keeps the branch of the example."""

    def __init__(self):
        super().__init__()
        self.decoder = make_decoder()

    def forward(self, low, high, threshold):
        if bool((low < 0).any()):
            return self.decoder(low, high, threshold)
        return self.decoder(low.abs(), high, threshold)


class Baked(Branching):
    """A trace keeps the scale of the example."""

    def forward(self, low, high, threshold):
        return self.decoder(low * float(low.max()), high, threshold)


class Imprecise(Branching):
    """The file has another factor than the model."""

    def forward(self, low, high, threshold):
        factor = 1.001 if torch.jit.is_tracing() else 1.0
        return self.decoder(low * factor, high, threshold)
'''

OTHERS = """
[models.swapped]
extends = "segmenter"

[models.swapped.feeds]
"mask_decoder.low" = "image_encoder.high"
"mask_decoder.high" = "image_encoder.low"
masks = "mask_decoder.logits"

[models.one_size]
extends = "segmenter"
chain = ["image_encoder", "fixed_decoder"]

[models.one_size.feeds]
"fixed_decoder.low" = "image_encoder.low"
"fixed_decoder.high" = "image_encoder.high"
masks = "fixed_decoder.logits"

[models.one_sign]
extends = "segmenter"
chain = ["image_encoder", "positive_decoder"]

[models.one_sign.feeds]
"positive_decoder.low" = "image_encoder.low"
"positive_decoder.high" = "image_encoder.high"
masks = "positive_decoder.logits"

[models.broken]
extends = "segmenter"
chain = ["image_encoder", "wrong_decoder"]

[models.broken.feeds]
"wrong_decoder.low" = "image_encoder.low"
"wrong_decoder.high" = "image_encoder.high"
masks = "wrong_decoder.logits"

[models.imprecise]
extends = "segmenter"
chain = ["image_encoder", "imprecise_decoder"]

[models.imprecise.feeds]
"imprecise_decoder.low" = "image_encoder.low"
"imprecise_decoder.high" = "image_encoder.high"
masks = "imprecise_decoder.logits"

[models.imprecise_decoder]
extends = "positive_decoder"
source = "nets.py:Imprecise"
tolerance = { rtol = 0.01, atol = 0.01 }

[models.fixed_decoder]
source = "nets.py:make_decoder"
inputs = [
    { name = "low", shape = [2, 4, 4, 4] },
    { name = "high", shape = [2, 4, 4, 4] },
    { name = "threshold", shape = [1] },
]
outputs = [{ name = "logits", shape = [2, 2, 4, 4] }, { name = "scores", shape = [2, 4, 4] }]

[models.positive_decoder]
source = "nets.py:Branching"
inputs = [
    { name = "low", shape = [2, 4, "h2", 4], fill = { uniform = [0.0, 1.0] } },
    { name = "high", shape = [2, 4, "h2", 4] },
    { name = "threshold", shape = [1] },
]
outputs = [
    { name = "logits", shape = [2, 2, "h2", 4] },
    { name = "scores", shape = [2, "h2", 4] },
]
axes = { h2 = { example = 4, min = 2, max = 6 } }

[models.wrong_decoder]
extends = "positive_decoder"
source = "nets.py:Baked"
"""


def edit(project: Path, before: str, after: str) -> None:
    path = project / "manifests/seg.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after its first export."""
    root = tmp_path_factory.mktemp("chains")
    settings = '[tool.exporter]\nstore = "store"\n'
    project = write_project(
        root, {"nets.py": NETS + OTHER_NETS, "seg.toml": ENTRIES + OTHERS}, settings
    )
    run_exporter(project, "export", code=1)
    return project


def test_each_red_chain_names_its_link_or_its_feeds(chains: Path) -> None:
    cells = {cell.partition("/")[0]: record for cell, record in read_cells(chains).items()}
    red = {model for model, record in cells.items() if record.status.is_red}
    assert red == {"swapped", "one_size", "one_sign", "broken", "wrong_decoder", "imprecise"}
    reason = "and so are their PyTorch modules one after the other: the errors of the files add up"
    assert reason in cells["imprecise"].message
    right = '`feeds = { "mask_decoder.low" = "image_encoder.low", '
    right += '"mask_decoder.high" = "image_encoder.high" }`'
    assert f"with {right}, the chain is right" in cells["swapped"].message
    assert cells["swapped"].message.startswith(CAUSE.strip().removeprefix("cause: "))
    assert cells["one_size"].check == "signature"
    assert "axis 'h2' of output 'masks' is fixed at 4" in cells["one_size"].message
    assert "h=10: the runtime fails: the link 'fixed_decoder' fails" in cells["one_size"].message
    assert "'low' is float32 [2, 4, 5, 4] from 'image_encoder.low'" in cells["one_size"].message
    reason = "the link 'positive_decoder' is the first that is wrong: output 'logits'"
    assert reason in cells["one_sign"].message
    reason = "the link 'wrong_decoder' is not green: wrong_decoder/17/cpu is fail"
    assert cells["broken"].message.startswith(reason)
    assert {cells[model].failure_code for model in red - {"wrong_decoder"}} == {"E-chain"}
    assert cells["segmenter"].route.title == "chain"  # type: ignore[union-attr]


def test_a_chain_depends_on_the_files_of_its_links(chains: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(chains, tmp_path / "project"))
    lines = run_exporter(project, "plan", "segmenter", code=0).stdout.splitlines()
    assert lines[0] == "0 cells to run, 3 to keep, 0 to skip"
    assert "12 of 12 results are up to date" in run_exporter(project, "doctor").stdout
    # The encoder alone is as right as before, and not that of the whole.
    edit(project, "[models.image_encoder]\n", "[models.image_encoder]\nseed = 5\n")
    text = run_exporter(project, "plan", "segmenter", code=0).stdout
    assert text.startswith("2 cells to run, 1 to keep, 0 to skip")
    assert "its link image_encoder has another result or none" in text
    run_exporter(project, "export", "segmenter", code=1)
    record = read_cells(project)["segmenter/17/cpu"]
    assert "the link 'image_encoder' has other weights: first.weight" in record.message
    # The store has the files of the first export, and the chain belongs to them.
    edit(project, "seed = 5\n", "")
    text = run_exporter(project, "plan", "segmenter", code=0).stdout
    assert "from the store" in text
    assert run_exporter(project, "export", "segmenter").returncode == 0
    assert read_cells(project)["segmenter/17/cpu"].status == "pass"
    assert run_exporter(project, "plan", "segmenter", code=0).stdout.startswith("0 cells to run")
    ended = run_exporter(project, "verify", "--entry", "segmenter", "build/segmenter/17.onnx")
    assert ended.stdout.endswith("1 verdict: 1 proved, 0 red\n")


def test_a_lost_or_weaker_chain_is_a_loss(chains: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(chains, tmp_path / "project"))
    run_exporter(project, "baseline", code=0)
    entries = (project / "manifests/seg.toml").read_text()
    low, high = (
        '"mask_decoder.low" = "image_encoder.low"',
        '"mask_decoder.low" = "image_encoder.high"',
    )
    edit(project, low, high)
    text = run_exporter(project, "gate", code=1).stdout
    assert "segmenter/17/cpu: contract changed: chain: id = mask_decoder" in text
    without = entries.replace("models.segmenter", "models.other")
    (project / "manifests/seg.toml").write_text(without.replace('"segmenter"', '"other"'))
    text = run_exporter(project, "gate", code=1).stdout
    assert "segmenter/17/cpu: promise removed: pass -> pass" in text


def test_a_published_chain_runs_without_pytorch(chains: Path, tmp_path: Path) -> None:
    run_exporter(chains, "publish", "segmenter", str(tmp_path / "dist"), "--initial", code=0)
    folder = Path(shutil.move(tmp_path / "dist/segmenter/17", tmp_path / "elsewhere"))
    code = "import sys; sys.modules['torch'] = sys.modules['onnx'] = None; import run; run.main()"
    ended = run_python(folder, "-c", code)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == "masks float32 [2, 2, 4, 4]"
    run_exporter(chains, "verify", str(folder), code=0)
    # The hashes of a folder are listed, and the file of the chain has those of its links.
    link, other = sorted(folder.glob("link-*.onnx"))
    link.unlink()
    ended = run_exporter(chains, "verify", str(folder), code=1)
    assert f"{link.name}, is missing" in ended.stderr
    shutil.copyfile(other, link)
    ended = run_exporter(chains, "verify", str(folder), code=1)
    assert f"{link.name}, is not the file that was proved" in ended.stderr
