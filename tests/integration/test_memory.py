"""A model that exceeds the memory limit ends as `killed`; other models are not affected."""

from __future__ import annotations

from pathlib import Path

from tests.integration.project import make_project, read_cells, run_exporter

GREEDY = """

class Greedy(Good):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            tensors = []
            while True:
                tensors.append(torch.ones(10_000_000))
        return super().forward(x)


class Refused(Good):
    def forward(self, x):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")


class Builds(Good):
    def __init__(self):
        super().__init__()
        self.blocks = [bytearray(10_000_000) for _ in range(1_000_000)]
"""


MODELS = {"builds": "Builds", "good": "Good", "greedy": "Greedy", "refused": "Refused"}


def test_only_models_above_the_memory_limit_are_killed(tmp_path: Path) -> None:
    settings = '[tool.exporter]\ndefaults.memory = "900MB"\n'
    root = make_project(tmp_path, more_models=GREEDY, settings=settings, **MODELS)
    run_exporter(root, "export", "--opset", "17", code=1)
    cells = read_cells(root)
    assert cells["good/17/cpu"].status == "pass", cells["good/17/cpu"].message
    for name, stage in (
        ("builds/17/cpu", "source"),
        ("greedy/17/cpu", "convert"),
        ("refused/17/cpu", "source"),
    ):
        assert (cells[name].status, cells[name].stage) == ("killed", stage), cells[name].message
        assert cells[name].message.startswith("needs more than the 900MB that `memory` allows: ")
