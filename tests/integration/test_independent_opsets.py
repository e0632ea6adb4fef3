"""A model that changes itself in a trace: each opset has the same file and record as alone.

The figures of checks are not compared: the review of a wrong file measures more samples in float64,
and they apply to the later opsets of the job.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.records.record import Record, Status, read_run
from tests.integration.project import format_entry, run_exporter, write_project

MODELS = '''
import torch
from torch import nn

SETTINGS = {"factor": 1.0}


class Changing(nn.Module):
    """Changes itself at the end of a trace, so that a second trace or a capture differs."""

    factor = 1.0

    def __init__(self, changes):
        super().__init__()
        self.changes = changes
        self.width = 4
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.register_buffer("offset", torch.zeros(4))

    def forward(self, x):
        y = self.inner(x) * self.factor * SETTINGS["factor"] * (torch.zeros(4) + 1) / self.width
        y = y + self.offset
        if torch.jit.is_tracing():
            for change in self.changes:
                getattr(self, change)(x)
        return y

    def attribute(self, x):
        self.width = torch.tensor(x.shape[1]) + x.sum().int() * 0

    def class_attribute(self, x):
        Changing.factor = 2.0

    def global_variable(self, x):
        SETTINGS["factor"] = 2.0

    def hook(self, x):
        self.inner.register_forward_hook(lambda module, args, output: output * 2)

    def buffer(self, x):
        self.offset = torch.ones(4)

    def weight(self, x):
        self.inner[0].weight.data += 1

    def mode(self, x):
        self.train()

    def submodule(self, x):
        self.inner = nn.Identity()

    def default_dtype(self, x):
        torch.set_default_dtype(torch.float64)

    def settings(self, x):
        torch.set_grad_enabled(True)
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True)
'''
#: The changes of each model.
CHANGES = {
    "kept": ("attribute", "class_attribute", "global_variable", "hook", "mode", "settings"),
    "torn": ("buffer", "weight"),
    "emptied": ("submodule",),
    "typed": ("default_dtype",),
}
#: The tracer reads their state after the change, so the file is wrong.
SELF_DESTRUCTIVE = ("torn", "emptied", "typed")


def export(root: Path, *arguments: str) -> tuple[dict[str, Record], dict[str, bytes]]:
    """Export in a new project; return the records without durations, and the files."""
    entries = []
    for name, changes in CHANGES.items():
        init, y = f"init = {{ changes = {[*changes]} }}", '"batch", 4'
        entries.append(format_entry(name, "models.py:Changing", init, opsets="[17, 18]", y=y))
    write_project(root, {"models.py": MODELS, "tiny.toml": "format = 1\n" + "".join(entries)})
    process = run_exporter(root, "export", "--no-store", "--jobs", "2", *arguments)
    assert process.returncode in (0, 1), process.stdout + process.stderr
    records = {
        str(record.cell): record.model_copy(
            update={
                "seconds": {},
                "checks": tuple(
                    check.model_copy(update={"seconds": 0.0, "metrics": {}})
                    for check in record.checks
                ),
            }
        )
        for record in read_run(root / "build/results.json").records
    }
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("build/*/*.onnx")}
    return records, files


@pytest.mark.timeout(300)
def test_each_opset_is_exported_as_if_it_was_alone(tmp_path: Path) -> None:
    records, files = export(tmp_path / "all")
    assert len(records) == len(files) == 2 * len(CHANGES)
    failed = {cell for cell, record in records.items() if record.status is not Status.PASS}
    assert failed == {f"{name}/17/cpu" for name in SELF_DESTRUCTIVE}
    # The trace of opset 17 ran before, and changed the model.
    alone, its_files = export(tmp_path / "alone", "--opset", "18")
    assert alone.keys() == {f"{name}/18/cpu" for name in CHANGES}
    for cell, record in alone.items():
        other = records[cell]
        # The other opset of the job may have run more functions.
        assert [each.file for each in record.sources] == [each.file for each in other.sources]
        assert record == other.model_copy(update={"sources": record.sources})
    assert its_files == {name: files[name] for name in its_files}
