"""Failures: a message of one line without the folders of this machine."""

from __future__ import annotations

import itertools
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

import pytest

from exporter.cache.fingerprint import TRANSIENT_STATUSES
from exporter.records.record import Record, Stage, Status
from exporter.worker.process.failure import (
    Failure,
    format_error,
    format_message,
    format_traceback_tail,
    report_invalid_entry,
    wrap_errors,
)
from exporter.worker.process.setup import mark_resource_failures
from tests.unit.factory import make_record, make_spec


def chain(*errors: Exception) -> Exception:
    """Link the errors as `raise … from …` does, outermost first."""
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError(), "KeyError"),
        (  # the innermost cause
            chain(
                RuntimeError("Failed to convert the exported program to an ONNX model."),
                ValueError("no kernel for 'aten::foo'\nand more"),
            ),
            "ValueError: no kernel for 'aten::foo'",
        ),
        (  # a wrapper of torch is never the message
            chain(
                TypeError("bad argument"),
                RuntimeError("Failed to export the model with torch.export. step 1/3"),
            ),
            "TypeError: bad argument",
        ),
        (
            ValueError(
                "Constraints violated (L['x'].size()[0])! For more information, run with "
                "TORCH_LOGS\n  - You marked L['x'].size()[0] as dynamic but your code "
                "specialized it (3).\n"
            ),
            "ValueError: Constraints violated (L['x'].size()[0]): "
            + "You marked L['x'].size()[0] as dynamic but your code specialized it (3).",
        ),
        (
            ValueError(
                "Found the following conflicts between user-specified ranges and inferred "
                "ranges:\n- tracing inferred a static shape of 3 for dimension "
                "inputs['x'].shape[0].\n"
            ),
            "ValueError: tracing inferred a static shape of 3 for dimension inputs['x'].shape[0].",
        ),
        (
            RuntimeError(
                "The following operation failed in the TorchScript interpreter.\n"
                "Traceback of TorchScript (most recent call last):\n"
                '  File "net.py", line 3, in forward\n'
                "    return self.table(ids)\n"
                "           ~~~~~~~~~~ <--- HERE\n"
                "IndexError: index out of range in self\n"
            ),
            "IndexError: index out of range in self",
        ),
        (
            RuntimeError("Error(s) in loading state_dict for Net:\n\tMissing key(s): 'a'.\n\tmore"),
            "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): 'a'.",
        ),
        (
            RuntimeError(
                "Attempted to call function marked as skipped\n"
                "  Explanation: `sleep` is skipped.\n  Hint: remove it.\n"
            ),
            "RuntimeError: Attempted to call function marked as skipped: `sleep` is skipped.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_message_is_the_reason(error: Exception, message: str) -> None:
    assert format_error(error) == message


def test_folders_and_addresses_are_removed() -> None:
    text = "at 0x7f12ab34cd in /home/me/project/models/net.py:12 of shape [3, 4]/[5]"
    assert format_message(text) == "at 0x… in net.py:12 of shape [3, 4]/[5]"
    assert len(format_message("x" * 5000)) == 400


def test_a_long_message_keeps_its_start_and_its_end() -> None:
    message = format_error(RuntimeError(f"node {'x' * 900} failed: the shapes differ"))
    assert len(message) == 400
    assert message.startswith("RuntimeError: node xxx")
    assert message.endswith("xxx failed: the shapes differ")


def test_the_tail_keeps_the_last_frames_relative_to_the_project() -> None:
    with pytest.raises(ValueError, match="late") as caught:
        int_of("late")
    lines = format_traceback_tail(caught.value).splitlines()
    assert lines[-1] == "ValueError: invalid literal for int() with base 10: 'late'"
    file = 'File "tests/unit/worker/process/test_failure.py"'
    assert any(file in line and "int_of" in line for line in lines)
    assert not any('"/' in line for line in lines)


def int_of(text: str) -> int:
    return int(text)


@pytest.mark.parametrize(
    ("error", "stage", "status", "message"),
    [
        (IndexError("3"), Stage.CAPTURE, Status.ERROR, "IndexError: 3"),
        (MemoryError(), Stage.CAPTURE, Status.KILLED, "MemoryError"),
        # A failure keeps its own stage.
        (Failure(Stage.SOURCE, "no such thing"), Stage.SOURCE, Status.ERROR, "no such thing"),
    ],
)
def test_any_exception_becomes_a_failure_of_its_stage(
    error: Exception, stage: Stage, status: Status, message: str
) -> None:
    with pytest.raises(Failure) as caught, wrap_errors(Stage.CAPTURE):
        raise error
    failure = caught.value
    assert (failure.stage, failure.status, failure.message) == (stage, status, message)


@pytest.mark.parametrize(
    ("count", "end"), [(1, "problem 0"), (4, "problem 3"), (6, "(and 2 more problems in the log)")]
)
def test_the_message_of_an_invalid_entry_has_its_first_problems(count: int, end: str) -> None:
    problems = [f"m.toml:{line}: problem {line}" for line in range(count)]
    failure = report_invalid_entry(problems)
    assert failure.message.startswith("; ".join(problems[:4]))
    assert failure.message.endswith(end)
    assert failure.detail.splitlines() == problems


FULL = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("status", [Status.ERROR, Status.FAIL])
@pytest.mark.parametrize("message", [FULL, "RuntimeError: bad allocation"])
def test_a_failure_for_lack_of_resources_is_transient(status: Status, message: str) -> None:
    marked = mark_resource_failures(
        make_record("net/17/cpu", status, message=message), make_spec("net")
    )
    assert marked.status is Status.KILLED
    assert marked.status in TRANSIENT_STATUSES
    assert marked.message == message


def test_the_message_has_the_memory_limit() -> None:
    spec = make_spec("net", memory=1 << 30)
    error = make_record("net/17/cpu", Status.ERROR, message="MemoryError")
    marked = mark_resource_failures(error, spec)
    assert marked.message == "needs more than the 1GiB that `memory` allows: MemoryError"
    assert mark_resource_failures(error.model_copy(update={"message": FULL}), spec).message == FULL


@pytest.mark.parametrize(
    "record",
    [
        make_record("net/17/cpu", Status.ERROR, message="KeyError: 'x'"),
        make_record("net/17/cpu", Status.PASS, message=FULL),
        make_record("net/17/cpu", Status.UNAVAILABLE, message=FULL),
    ],
)
def test_other_records_are_unchanged(record: Record) -> None:
    assert mark_resource_failures(record, make_spec("net")) is record


class UnprintableError(Exception):
    """An error that fails if it is printed."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnprintableError(), "UnprintableError: <exception str() failed>"),
        (ValueError("bad \udcff name"), "ValueError: bad \N{REPLACEMENT CHARACTER} name"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_unprintable_error_is_a_failure_with_a_message(error: Exception, message: str) -> None:
    with pytest.raises(Failure) as caught, wrap_errors(Stage.SOURCE):
        raise error
    assert caught.value.message == message
    assert caught.value.detail
    (caught.value.message + caught.value.detail).encode()


@pytest.mark.parametrize("path", [[], ["elsewhere"], None])
def test_removed_entries_of_the_import_path_are_restored(
    monkeypatch: pytest.MonkeyPatch, path: list[str] | None
) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with wrap_errors(Stage.SOURCE):
        monkeypatch.setattr(sys, "path", path)
        sys.meta_path.clear()
    assert sys.path[: len(path or [])] == (path or [])
    missing = set(before) - set(sys.path)
    # Packages such as setuptools add folders of their own inside it.
    assert not any(entry.endswith("site-packages") for entry in missing)
    assert {BuiltinImporter, FrozenImporter, PathFinder} <= set(sys.meta_path)
