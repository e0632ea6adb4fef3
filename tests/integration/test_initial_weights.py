"""`--weights initial`: a pull request without trained weights proves its exports, and says so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.project import (
    format_entry,
    make_project,
    read_cells,
    run_exporter,
    run_git,
)

METRIC = """

def largest(run):
    import numpy as np

    return float(run(x=np.ones((2, 4), np.float32))["y"].max())


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = make_first(), torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.first(x))


def make_first():
    return torch.nn.Linear(4, 3)


def make_second():
    return torch.nn.Linear(3, 3)


def make_second_of_pair():
    return Pair().second
"""
_METRIC = 'metric = {{ call = "models.py:largest", least = {} }}'


def _format_weights(name: str) -> str:
    return f'weights = "../checkpoints/{name}"'


def _format_part(id: str, source: str, part: str) -> str:
    line = f'weights = {{ file = "../checkpoints/pair.pt", strip = "{part}." }}'
    return format_entry(id, source, line, x='"batch", 4' if part == "first" else '"batch", 3')


def _format_chain(id: str, second: str) -> str:
    feeds = f'feeds = {{ "{second}.x" = "first.y" }}'
    chain = f'chain = ["first", "{second}"]'
    return format_entry(id, "models.py:Pair", _format_weights("pair.pt"), chain, feeds)


ENTRIES = "".join(
    (
        format_entry("net", "models.py:Good", _format_weights("net.pt"), _METRIC.format(10)),
        format_entry(
            "foreseen",
            "models.py:Good",
            _format_weights("net.pt"),
            _METRIC.format(1e9),
            'expect = [{ check = "metric", reason = "trained for one day" }]',
        ),
        format_entry("baked", "models.py:Baked", _format_weights("net.pt")),
        format_entry("wrong", "models.py:Good", _format_weights("wrong.pt")),
        format_entry("typo", "models.py:Good", 'weights = "typo.pt"'),
        _format_part("first", "models.py:make_first", "first"),
        _format_part("second", "models.py:make_second", "second"),
        _format_part("same", "models.py:make_second_of_pair", "second"),
        _format_chain("pair", "second"),
        _format_chain("alike", "same"),
    )
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone without the trained weights, with the exports of `--weights initial`."""
    author = tmp_path_factory.mktemp("weights") / "author"
    make_project(author, more_models=METRIC)
    (author / "checkpoints").mkdir()
    state = {"linear.weight": torch.full((3, 4), 7.0), "linear.bias": torch.arange(3.0)}
    for name in ("net.pt", "wrong.pt"):
        torch.save(state, author / "checkpoints" / name)
    torch.manual_seed(1)
    parts = {"first": torch.nn.Linear(4, 3), "second": torch.nn.Linear(3, 3)}
    torch.save(torch.nn.ModuleDict(parts).state_dict(), author / "checkpoints/pair.pt")
    (author / ".gitignore").write_text("build/\ncheckpoints/\n")
    (author / "manifests/tiny.toml").write_text(f"format = 1\n{ENTRIES}")
    run_git(author, "init", "-q", "-b", "main")
    state_file = author / "checkpoints/net.pt"
    content = state_file.read_bytes()
    state_file.unlink()
    step = "next: fetch checkpoints/net.pt first: see `exporter guide weights`"
    assert step in run_exporter(author, "export", "net", code=1).stdout
    state_file.write_bytes(content)
    run_exporter(author, "export", "net", "foreseen", "pair", code=0)
    run_exporter(author, "baseline", "update", "net", "foreseen", "pair", "--reason", "trained")
    run_git(author, "add", "-A")
    run_git(author, "commit", "-qm", "accepted")
    root = author.with_name("clone")
    run_git(author, "clone", "-q", str(author), str(root))
    (root / "checkpoints").mkdir()
    (root / "checkpoints/wrong.pt").write_text("half of a download")
    export = run_exporter(root, "export", "--weights", "initial", code=1)
    text = "weights: initial values in place of checkpoints/net.pt; this proves the export, not the"
    assert text in export.stdout
    return root


def test_only_a_missing_file_that_git_ignores_is_replaced(clone: Path) -> None:
    records = read_cells(clone)
    outcomes = {cell.partition("/")[0]: each.status.value for cell, each in records.items()}
    assert outcomes == {
        "net": "pass",
        "foreseen": "pass",
        "baked": "fail",
        "wrong": "error",
        "typo": "error",
        "first": "pass",
        "second": "pass",
        "same": "pass",
        "pair": "unavailable",
        "alike": "pass",
    }
    text = "the link 'second' has other initial values than the whole: weight, bias; the file"
    assert records["pair/17/cpu"].message.startswith(text)
    assert "cannot be read" in records["wrong/17/cpu"].message
    assert 'the file "manifests/typo.pt" does not exist' in records["typo/17/cpu"].message
    notes = records["net/17/cpu"].notes
    assert "weights: initial values in place of checkpoints/net.pt" in notes
    assert "not proved: the metric, which initial weights do not have" in notes
    page = (clone / "reports/models/net.md").read_text()
    assert "initial values in place of checkpoints/net.pt" in page
    assert "🎲" in (clone / "reports/COMPATIBILITY.md").read_text()


def test_the_gate_of_a_pull_request_compares_all_but_the_numbers(clone: Path) -> None:
    arguments = ("gate", "--weights", "initial", "--against", "main")
    gate = run_exporter(clone, *arguments, "--json", code=1)
    rows = json.loads(gate.stdout)
    command = "exporter repro baked/17/cpu --weights initial"
    assert [row["commands"] for row in rows["findings"] if "baked/17/cpu" in row["cells"]] == [
        [command]
    ]
    run_exporter(clone, *command.split()[1:], code=0)
    script = clone / "build/repro/baked-17-cpu/repro.py"
    ended = subprocess.run(
        [sys.executable, str(script)], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    of_net = {name for name, file in rows["replaced"].items() if file == "checkpoints/net.pt"}
    assert of_net == {"net", "foreseen", "baked"}
    assert ", 8 with initial weights" in rows["verdict"]
    findings = {row["subject"]: (row["kind"], row["is_blocking"]) for row in rows["findings"]}
    assert findings["foreseen/17/cpu"] == ("fixed", False)
    assert findings["pair/17/cpu"] == ("newly unavailable", False)
    assert findings["baked/17/cpu"] == ("new cell, red", True)
    assert "net/17/cpu" not in findings
    assert rows["stale_pages"] == "", "nobody should commit the pages of this machine"
    text = "**Initial weights**, which prove the export, not the numbers of the trained ones: `net`"
    assert text in (clone / "build/gate.md").read_text()
    assert text in (clone / "build/comment.md").read_text()


def test_without_the_option_nothing_is_accepted_published_or_green(
    clone: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(clone, tmp_path / "clone", symlinks=True)
    gate = run_exporter(root, "gate", "--against", "main", code=1)
    assert "net/17/cpu, pair/17/cpu: missing" in gate.stdout
    accepted = (root / "reports/baseline/net.json").read_bytes()
    for arguments in ((), ("update", "net", "--reason", "none")):
        run_exporter(root, "baseline", *arguments)
        assert (root / "reports/baseline/net.json").read_bytes() == accepted, arguments
    publish = run_exporter(root, "publish", "dist", "--initial", code=1)
    assert not list((root / "dist").rglob("*.onnx")), publish.stdout
    # The same entry without its weights is another one.
    text = (root / "manifests/tiny.toml").read_text()
    (root / "manifests/tiny.toml").write_text(text.replace(_format_weights("net.pt"), ""))
    plan = run_exporter(root, "plan", "net")
    assert "entry changed" in plan.stdout + plan.stderr
