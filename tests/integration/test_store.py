"""Results in the store are restored in another checkout, with the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.project import make_project, read_cells, run_exporter

MODELS = """

class Wide(nn.Module):
    '''Has more than 1 MiB of weights, so they are external data.'''

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 70000)
        self.second = nn.Linear(70000, 3, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


class Unsupported(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)[:, :3]
"""


def make_store_project(root: Path) -> Path:
    """Create a project with external data, at one opset of each exporter."""
    sources = {"wide": "Wide", "unsupported": "Unsupported"}
    return make_project(root, more_models=MODELS, opsets="[17, 18]", **sources)


def read_files(root: Path) -> dict[str, bytes]:
    """Return the files of the models, without the files that belong to one run."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for model in ("wide", "unsupported")
        for path in sorted((root / "build" / model).rglob("*"))
        if path.is_file() and path.name not in ("job.json", "at_work.json")
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an exported checkout with a store outside of it."""
    root = make_store_project(tmp_path_factory.mktemp("store") / "first")
    settings = '[tool.exporter]\nstore = "../shared"\n'
    (root / "pyproject.toml").write_text(settings)
    assert run_exporter(root, "export").returncode == 1
    return root


def test_another_checkout_restores_all_cells(first: Path) -> None:
    other = make_store_project(first.with_name("other"))
    store = str(first.with_name("shared"))
    for arguments, setting in (
        (("plan",), "off"),
        (("plan", "--no-store"), store),
        (("export", "--no-store", "--dry-run"), store),
    ):
        local = run_exporter(other, *arguments, EXPORTER_STORE=setting)
        assert local.stdout.splitlines()[0] == "4 cells to run, 0 to keep, 0 to skip"
    restored = run_exporter(other, "export", "--explain", EXPORTER_STORE=store, code=1)
    assert " runs: " not in restored.stdout
    assert "4 cells: 2 pass, 2 error, 4 of them restored from the store" in restored.stdout
    assert read_files(other) == read_files(first)
    assert read_cells(other) == read_cells(first)
    again = run_exporter(other, "export", EXPORTER_STORE=store)
    assert "restored" not in again.stdout
    assert not (other / "build/.store").exists()
