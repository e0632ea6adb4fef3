"""What real workers made once is not made again: an undone edit, another checkout, another way."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import pytest

from exporter.records.record import Record, read_run
from tests.integration.project import make_project, run_exporter

WIDE = """

class Wide(nn.Module):
    '''More than a MiB of weights, which lie outside the file.'''

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 70000)
        self.second = nn.Linear(70000, 3, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


class Refused(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)[:, :3]
"""


def make(root: Path) -> Path:
    """A project with a model whose weights lie outside, at an opset of each exporter."""
    make_project(root, wide="Wide", refused="Refused")
    path = root / "manifests/models.py"
    path.write_text(path.read_text() + WIDE)
    path = root / "manifests/tiny.toml"
    path.write_text(path.read_text().replace("[16, 17]", "[17, 18]"))
    return root


def files(root: Path) -> dict[str, bytes]:
    """All that the build folder keeps of models; a job and an announcement are about one run."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for model in ("wide", "refused")
        for path in sorted((root / "build" / model).rglob("*"))
        if path.is_file() and path.name not in ("job.json", "at_work.json")
    }


def records(root: Path) -> dict[str, Record]:
    return read_run(root / "build/results.json").by_cell()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that was exported, edited and exported again, with a store outside of it."""
    root = make(tmp_path_factory.mktemp("store") / "first")
    settings = '[tool.exporter]\nstore = "../shared"\n'
    (root / "pyproject.toml").write_text(settings)
    assert run_exporter(root, "export").returncode == 1
    return root


def test_an_edit_that_is_undone_makes_nothing_and_leaves_the_same_bytes(first: Path) -> None:
    before, found = files(first), records(first)
    assert {cell: record.status.value for cell, record in found.items()} == {
        "refused/17/cpu": "error",
        "refused/18/cpu": "error",
        "wide/17/cpu": "pass",
        "wide/18/cpu": "pass",
    }
    source = first / "manifests/models.py"
    text = source.read_text()
    source.write_text(text.replace("self.second(self.first(x))", "2 * self.second(self.first(x))"))
    edited = run_exporter(first, "export", "--explain", "wide")
    assert edited.returncode == 0, edited.stdout + edited.stderr
    assert edited.stdout.count(" runs: manifests/models.py changed") == 2
    assert files(first) != before
    source.write_text(text)
    shown = run_exporter(first, "plan")
    assert shown.stdout.splitlines()[-1] == (
        "0 cells to run, 2 to keep, 0 to skip, 2 to restore from the store"
    )
    undone = run_exporter(first, "export", "--explain")
    assert undone.returncode == 1
    assert " runs: " not in undone.stdout
    assert undone.stdout.count("is restored from the store: manifests/models.py changed") == 2
    assert "4 cells: 2 pass, 2 error, 2 of them restored from the store" in undone.stdout
    assert files(first) == before
    assert records(first) == found


def test_onnx_reads_what_was_taken(first: Path) -> None:
    for opset in (17, 18):
        path = first / f"build/wide/{opset}.onnx"
        onnx.checker.check_model(path, full_check=True)
        assert len(onnx.load(path).graph.initializer) == 3
    weights = list((first / "build/wide").glob("weights-*.data"))
    assert weights
    assert all(path.stat().st_nlink == 1 for path in weights)


def test_another_checkout_makes_nothing(first: Path) -> None:
    other = make(first.with_name("other"))
    store = str(first.with_name("shared"))
    alone = run_exporter(other, "export", "wide/17", EXPORTER_STORE="off")
    assert alone.returncode == 0
    shutil.rmtree(other / "build")
    found = run_exporter(other, "export", "--explain", EXPORTER_STORE=store)
    assert found.returncode == 1
    assert " runs: " not in found.stdout
    assert "4 of them restored from the store" in found.stdout
    assert files(other) == files(first)
    assert records(other) == records(first)
    again = run_exporter(other, "export", EXPORTER_STORE=store)
    assert "taken" not in again.stdout
    assert not (other / "build/.store").exists()


def test_without_the_store_it_is_made(first: Path) -> None:
    shutil.rmtree(first / "build/wide")
    plan = run_exporter(first, "plan", "--no-store")
    assert plan.stdout.splitlines()[-1] == "2 cells to run, 2 to keep, 0 to skip"
    made = run_exporter(first, "export", "--no-store", "wide/17")
    assert made.returncode == 0
    assert "[1/1] wide: 1 pass" in made.stdout


def test_a_store_that_is_only_read_is_said_once(first: Path) -> None:
    shared = first.with_name("shared")
    before = sorted(shared.rglob("*"))
    source = first / "manifests/models.py"
    source.write_text(source.read_text() + "\n# another version\n")
    made = run_exporter(first, "export", "wide", EXPORTER_STORE_READONLY="1")
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("results are not stored: the store is read-only") == 1
    assert sorted(shared.rglob("*")) == before


def test_two_runs_at_once_share_it(first: Path, tmp_path: Path) -> None:
    """Both put the same, and what is there afterwards is whole."""
    store = tmp_path / "store"
    roots = [make(tmp_path / name) for name in ("one", "two")]
    with ThreadPoolExecutor() as threads:
        runs = threads.map(
            lambda r: run_exporter(r, "export", "wide", EXPORTER_STORE=str(store)), roots
        )
        assert [each.returncode for each in runs] == [0, 0]
    third = make(tmp_path / "three")
    found = run_exporter(third, "export", "wide", EXPORTER_STORE=str(store))
    assert "2 cells: 2 pass, 2 of them restored from the store" in found.stdout
    ships = (".onnx", ".data", ".pb")
    assert [{n: d for n, d in files(r).items() if n.endswith(ships)} for r in roots] == [
        {n: d for n, d in files(third).items() if n.endswith(ships)}
    ] * 2
    assert not list((store / "tmp").iterdir())


def test_the_usual_store_has_weights_nowhere_twice(tmp_path: Path) -> None:
    root = make(tmp_path / "project")
    source = root / "manifests/models.py"
    text = source.read_text()
    assert run_exporter(root, "export", "wide/18").returncode == 0
    before = files(root)
    source.write_text(text.replace("4, 70000)", "4, 80000)").replace("70000, 3", "80000, 3"))
    assert run_exporter(root, "export", "wide/18").returncode == 0
    large = [path for path in (root / "build").rglob("*") if path.stat().st_size > 1 << 20]
    assert len(large) == 2
    source.write_text(text)
    undone = run_exporter(root, "export", "wide/18")
    assert "1 of them restored from the store" in undone.stdout, undone.stdout
    assert files(root) == before
    onnx.checker.check_model(root / "build/wide/18.onnx", full_check=True)
    large = [path for path in (root / "build").rglob("*") if path.stat().st_size > 1 << 20]
    assert len(large) == 2
