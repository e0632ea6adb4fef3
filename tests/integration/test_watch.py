"""`export --watch` runs cells again after a change, with the verdicts of `export`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from tests.integration.project import (
    make_project,
    read_cells,
    run_exporter,
    run_git,
    run_python,
    start_exporter,
)

WAITING = "Ctrl-C ends"


class Watch:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for(self, text: str = WAITING) -> str:
        """Return the lines up to the next one with the text."""
        shown = []
        for line in cast("IO[str]", self.process.stdout):
            shown.append(line)
            if text in line:
                break
        else:
            pytest.fail(f"the command ended without {text!r}: {shown}")
        return "".join(shown)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@contextmanager
def watch(root: Path, *arguments: str) -> Iterator[Watch]:
    """Start an export as a shell does: a fork of the tests has other packages and files."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = ("export", "--watch", "--no-store", *arguments)
    with start_exporter(root, *command, **options) as process:
        try:
            yield Watch(process)
        finally:
            process.kill()


def read_verdicts(root: Path) -> dict[str, tuple[object, ...]]:
    return {
        cell: (record.status, record.message, record.sources, record.packages)
        for cell, record in read_cells(root).items()
    }


def test_each_change_gives_the_verdict_of_an_export(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", other="Good")
    models, manifest = root / "manifests/models.py", root / "manifests/tiny.toml"
    code, entries = models.read_text(), manifest.read_text()
    run_git(root, "init", "-q")
    (root / ".gitignore").write_text("build\nreports\n")
    run_git(root, "add", ".")
    run_git(root, "commit", "-qm", "one")

    with watch(root, "good") as watched:
        assert "2 cells: 2 pass" in watched.wait_for()

        # The file has one output element more than the entry promises.
        models.write_text(code.replace("nn.Linear(4, 3)", "nn.Linear(4, 2)"))
        shown = watched.wait_for()
        assert "good/16..17/cpu runs: manifests/models.py: Good.__init__ changed" in shown
        assert "2 cells: 2 fail" in shown
        seen = read_verdicts(root)
        export = ("-m", "exporter", "export", "good", "--force", "--no-store")
        assert run_python(root, *export).returncode == 1
        assert seen == read_verdicts(root)

        models.write_text("def broken(:\n")
        assert "invalid syntax" in watched.wait_for()
        manifest.write_text("[models.good\n")
        assert "tiny.toml:1: " in watched.wait_for()
        manifest.write_text(entries.replace("[16, 17]", "[16]"))
        assert "no selected cell depends on a change" in watched.wait_for()
        models.unlink()
        shown = watched.wait_for()
        assert "models.py" in shown
        run_git(root, "checkout", "-q", ".")
        assert "2 cells: 2 pass" in watched.wait_for()

        (root / "manifests/new.toml").write_text("format = [\n")
        assert "new.toml" in watched.wait_for()
        assert watched.end() == 130
    assert {cell: record.status for cell, record in read_cells(root).items()} == {
        "good/16/cpu": "pass",
        "good/17/cpu": "pass",
    }


def test_ctrl_c_during_a_run_keeps_finished_results(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", late="Sleeps")
    with watch(root, "--jobs", "1") as watched:
        watched.wait_for("good: 2 pass")
        assert watched.end() == 130
        assert "interrupted; finished results are kept" in watched.wait_for("interrupted")
    assert {"good/16/cpu", "good/17/cpu"} <= read_cells(root).keys()


def test_a_selection_without_cells_ends_the_watch(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good")
    ran = run_exporter(root, "export", "--watch", "godo")
    assert (ran.returncode, "did you mean" in ran.stderr) == (3, True)
    ran = run_exporter(root, "export", "--watch", "--shard", "1/2")
    assert (ran.returncode, "--watch: remove" in ran.stderr) == (2, True)
