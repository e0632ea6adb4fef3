"""Each instrument of a verdict that reports nothing is named in each cell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.commands.doctor import child
from exporter.planning.plan import choose_route
from exporter.records.record import UNPROVED_PREFIX
from exporter.worker import instruments
from exporter.worker.dependencies import opened_files, packages
from exporter.worker.dependencies.access_tracer import AccessTracer
from exporter.worker.dependencies.executed_code import EXECUTED, ExecutedCode
from exporter.worker.dependencies.opened_files import OpenedFiles, watch_variables
from exporter.worker.dependencies.packages import watch_searches
from exporter.worker.export import convert
from exporter.worker.process import followed_code
from exporter.worker.process.fork_call import compute_in_fork
from tests.tracer_support import needs_tracer
from tests.traps.prove import make_record
from tests.traps.table import SOUND_MODELS

Patch = pytest.MonkeyPatch


def silence_branches(patch: Patch) -> None:
    for name in ("_trace", "_monitor"):
        patch.setattr(followed_code, name, lambda *_: nullcontext())


def silence_mode(mode: type, patch: Patch) -> None:
    patch.setattr(mode, "__enter__", lambda self: self)
    patch.setattr(mode, "__exit__", lambda *_: None)


def silence_warnings(patch: Patch) -> None:
    patch.setattr(convert, "TracerWarning", DeprecationWarning)


def silence_conditions(patch: Patch) -> None:
    patch.setattr(instruments, "list_conditions", lambda _: ())


def silence_writes(patch: Patch) -> None:
    patch.setattr(instruments, "count_writes", lambda _: 0)


def silence_draws(patch: Patch) -> None:
    patch.setattr(instruments, "has_drawn", lambda _: True)


#: What a cell says if the function silences the instrument.
SILENCES: dict[str, Callable[[Patch], None]] = {
    "branches were not searched": silence_branches,
    "numbers and operators of the model": lambda patch: silence_mode(TorchDispatchMode, patch),
    "convolutions of large models": lambda patch: silence_mode(TorchFunctionMode, patch),
    "branches that a trace keeps": silence_warnings,
    "values that the model changes": silence_writes,
    "weights without a file": silence_draws,
    "sizes that break conditions": silence_conditions,
}


def ignore(*_: object, **__: object) -> None:
    """Record nothing."""


#: The same for what the record depends on: a function of a recorder.
RECORDERS: dict[str, tuple[Any, str, Any]] = {
    "files that Python opens": (OpenedFiles, "add_open", ignore),
    "folders that the model lists": (OpenedFiles, "add_listing", ignore),
    "files for which the model looks": (OpenedFiles, "add_test", ignore),
    "texts of code that are read": (ExecutedCode, "forget_text", lambda *_: False),
    "variables that the model reads": (opened_files.VariableReads, "add", ignore),
    "modules for which the model searches": (packages._Searches, "find_spec", ignore),
    "packages for which the model searches": (packages._Searches, "add_distribution", ignore),
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenedFiles]:
    """Return the recorder of files of a job; the others watch, too."""
    recorder = OpenedFiles()
    watch_variables()
    watch_searches(tmp_path)
    EXECUTED.watch()
    with recorder.watch():
        yield recorder


def test_each_instrument_reports_its_known_example(opened: OpenedFiles, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    assert instruments.list_silent(has_captures=True) == ()
    assert instruments.list_silent_recorders(opened, watch_variables(), tmp_path) == ()
    # Nothing of the examples remains.
    accesses = opened.list_accesses()
    paths = (*accesses.read, *accesses.tested, *accesses.listed, *accesses.untracked)
    assert [path for path in paths if "known_example" in path] == []
    assert "exporter_known_example" not in str(packages.list_loaded_packages(tmp_path))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("text", SILENCES)
def test_a_silent_instrument_is_named(text: str, monkeypatch: Patch) -> None:
    SILENCES[text](monkeypatch)
    silent = instruments.list_silent(has_captures=True)
    assert any(each.startswith(text) and "of a known example" in each for each in silent)


def test_conditions_are_for_captures_only(monkeypatch: Patch) -> None:
    silence_conditions(monkeypatch)
    assert instruments.list_silent(has_captures=False) == ()


def test_an_instrument_that_fails_is_named(monkeypatch: Patch) -> None:
    def fail(_: object) -> None:
        raise AttributeError("it is gone")

    monkeypatch.setattr(instruments, "count_writes", fail)
    [text] = instruments.list_silent(has_captures=False)
    assert text.endswith("because the run of a known example fails: AttributeError: it is gone")


@pytest.mark.parametrize("subject", RECORDERS)
def test_a_silent_recorder_is_named_and_its_job_runs_each_time(
    subject: str, opened: OpenedFiles, tmp_path: Path, monkeypatch: Patch
) -> None:
    owner, name, silent = RECORDERS[subject]
    monkeypatch.setattr(owner, name, silent)
    [text] = instruments.list_silent_recorders(opened, watch_variables(), tmp_path)
    assert text.startswith(f"{subject} were not recorded, because this Python does not report")
    assert opened.list_accesses().untracked == (f"the {subject}",)


def test_a_removed_finder_is_noticed(
    opened: OpenedFiles, tmp_path: Path, monkeypatch: Patch
) -> None:
    others = [each for each in sys.meta_path if each is not packages.SEARCHES]
    monkeypatch.setattr(sys, "meta_path", others)
    [text] = instruments.list_silent_recorders(opened, watch_variables(), tmp_path)
    assert text.startswith("modules for which the model searches were not recorded")


@needs_tracer
def test_a_silent_tracer_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    # A process cannot stop its tracer, so a fork has it.
    def examine() -> tuple[str, ...]:
        return child.list_silent_instruments(tmp_path)

    assert compute_in_fork(examine) == ()
    monkeypatch.setattr(AccessTracer, "forget", lambda *_: False)
    result = compute_in_fork(examine)
    assert result is not None
    assert [text.partition(",")[0] for text in result] == [
        "files that native code opens were not recorded"
    ]


#: An export needs them itself: dynamo captures with modes.
NEEDED = {"dynamo": ["numbers and operators of the model", "convolutions of large models"]}
NEEDED["torchscript"] = ["sizes that break conditions"]


@pytest.mark.parametrize("exporter", NEEDED)
def test_a_cell_names_all_that_are_silent(
    exporter: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    trap = next(
        each for each in SOUND_MODELS if choose_route(each.spec, each.opset).exporter == exporter
    )
    silences = {text: each for text, each in SILENCES.items() if text not in NEEDED[exporter]}
    for silence in silences.values():
        silence(monkeypatch)
    for owner, name, silent in RECORDERS.values():
        monkeypatch.setattr(owner, name, silent)
    record = make_record(trap, tmp_path / "trap")
    assert record.status.is_green
    for text in (*silences, *RECORDERS):
        assert any(note.startswith(f"{UNPROVED_PREFIX}{text}") for note in record.notes), text
    assert {*record.untracked} >= {f"the {subject}" for subject in RECORDERS}
