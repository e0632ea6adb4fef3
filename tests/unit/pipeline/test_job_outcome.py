from __future__ import annotations

import signal
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exporter
from exporter.core.text import memory_limit_message
from exporter.jobs import Announcement, JobFolder
from exporter.pipeline import supervisor
from exporter.pipeline.engine import ExitKind
from exporter.pipeline.supervisor import (
    Verdict,
    evaluate_job,
    may_succeed_alone,
    read_log_tail,
    restrict_job,
)
from exporter.records.record import CellId, Record, Stage, Status
from tests.unit.pipeline.builders import announcement, job, outcome, spec

SPEC = spec(devices=("cpu", "reference"))
JOB = job(Path("/nowhere/tiny"), SPEC)
CELLS = JOB.cells()
CELL = {str(cell): cell for cell in CELLS}


def passing(*cells: CellId) -> dict[CellId, Record]:
    return {cell: Record(cell=cell, status=Status.PASS) for cell in cells}


def evaluate(
    ended: ExitKind, code: int = 0, at_work: Sequence[CellId] = (), done: Sequence[CellId] = ()
) -> Verdict:
    announced = announcement(at_work) if at_work else None
    return evaluate_job(outcome(JOB, ended, code, announced), passing(*done))


def test_everything_counts_when_the_worker_finished() -> None:
    verdict = evaluate(ExitKind.EXITED, 0, CELLS[-1:], CELLS)
    assert verdict.records == passing(*CELLS)
    assert verdict.retry == ()


@pytest.mark.parametrize(
    ("ended", "code", "status"),
    [
        (ExitKind.TIMEOUT, 0, Status.TIMEOUT),
        (ExitKind.SIGNAL, 0, Status.CRASH),
        (ExitKind.SIGNAL, signal.SIGSEGV, Status.CRASH),
        (ExitKind.EXITED, 1, Status.CRASH),
    ],
)
def test_announced_cells_of_an_ended_worker_are_not_finished(
    ended: ExitKind, code: int, status: Status
) -> None:
    records = evaluate(ended, code, CELLS[-1:], CELLS).records
    statuses = {cell: record.status for cell, record in records.items()}
    assert statuses == {**dict.fromkeys(CELLS[:-1], Status.PASS), CELLS[-1]: status}
    if code == signal.SIGSEGV:
        message = "the worker was terminated by SIGSEGV while at convert"
        assert records[CELLS[-1]].message == message


def test_code_0_with_cells_missing_is_a_crash() -> None:
    at_work = [CELL["tiny/18/cpu"], CELL["tiny/18/reference"]]
    verdict = evaluate(ExitKind.EXITED, 0, at_work, [*CELLS[:2], at_work[0]])
    for name in ("tiny/18/cpu", "tiny/18/reference"):
        crash = verdict.records[CELL[name]]
        assert (crash.status, crash.stage) == (Status.CRASH, Stage.CONVERT)
        assert crash.message == "the worker exited with code 0 while at convert"
        assert crash.route is not None
        assert crash.route.exporter == "dynamo"
    assert [str(cell) for cell in verdict.retry] == ["tiny/19/cpu", "tiny/19/reference"]


def test_sigkill_from_another_process_is_the_status_killed() -> None:
    verdict = evaluate(ExitKind.SIGNAL, signal.SIGKILL, CELLS[:1])
    assert verdict.records[CELLS[0]].status is Status.KILLED
    assert "memory" in verdict.records[CELLS[0]].message
    assert verdict.retry == CELLS[1:]


def test_a_crash_before_the_first_stage_fails_every_cell() -> None:
    verdict = evaluate(ExitKind.EXITED, 1)
    assert {r.status for r in verdict.records.values()} == {Status.CRASH}
    assert verdict.retry == ()
    assert verdict.records[CELLS[0]].stage is None


def test_a_timeout_names_the_announced_cell() -> None:
    at_work = announcement([CELL["tiny/18/cpu"]], Stage.PARITY)
    verdict = evaluate_job(outcome(JOB, ExitKind.TIMEOUT, 0, at_work), passing(*CELLS[:2]))
    assert verdict.retry == ()
    assert [r.status for r in verdict.records.values()].count(Status.TIMEOUT) == 4
    late, waiting = (verdict.records[CELL[name]] for name in ("tiny/18/cpu", "tiny/19/cpu"))
    reason = "the model's job took longer than 60 s of CPU time, and ended while at parity"
    assert late.message == reason
    assert late.stage is Stage.PARITY
    assert waiting.stage is None
    assert waiting.message.startswith("not reached: ")
    assert "tiny/18/cpu" in waiting.message


@pytest.mark.parametrize(
    ("ended", "code", "others"),
    [
        (ExitKind.SIGNAL, signal.SIGABRT, ()),
        (ExitKind.EXITED, 1, ()),
        (ExitKind.TIMEOUT, 0, (Status.TIMEOUT,) * 2),
        (ExitKind.SERVER_END, 0, ()),
    ],
)
def test_a_diagnosis_that_ends_the_worker_changes_no_verdict(
    ended: ExitKind, code: int, others: tuple[Status, ...]
) -> None:
    at_work = announcement(CELLS[:1], is_diagnosis=True)
    verdict = evaluate_job(outcome(JOB, ended, code, at_work), passing(*CELLS[:2]))
    statuses = [record.status for record in verdict.records.values()]
    assert statuses == [Status.PASS, Status.PASS, *others, *others]
    assert verdict.retry == (() if others else CELLS[2:])


def test_a_silent_job_has_a_timeout_with_that_reason() -> None:
    at_work = announcement([CELL["tiny/18/cpu"]], Stage.PARITY)
    verdict = evaluate_job(outcome(JOB, ExitKind.SILENCE, 0, at_work), {})
    late = verdict.records[CELL["tiny/18/cpu"]]
    reason = "used no CPU time and made no progress for 60 s"
    assert late.status is Status.TIMEOUT
    assert late.message == f"the model's job {reason}, and ended while at parity"


def test_an_interruption_decides_only_finished_cells() -> None:
    verdict = evaluate(ExitKind.INTERRUPTED, 0, CELLS[1:2], CELLS[:2])
    assert verdict.records == passing(CELLS[0])
    assert verdict.retry == ()


def test_records_of_other_cells_are_ignored() -> None:
    stranger = CellId(model="tiny", opset=9, device="cpu")
    assert stranger not in evaluate(ExitKind.EXITED, 0, (), [*CELLS, stranger]).records


announcements = st.none() | st.builds(
    announcement,
    st.lists(st.sampled_from([*CELLS, CellId(model="x", opset=1, device="cpu")])),
    is_diagnosis=st.booleans(),
)


@given(
    st.sets(st.sampled_from(CELLS)),
    announcements,
    st.sampled_from(list(ExitKind)),
    st.sampled_from([0, 1, 4, 9, 11]),
)
def test_each_cell_is_decided_or_retried_and_only_its_record_makes_it_green(
    written: set[CellId], at_work: Announcement | None, ended: ExitKind, code: int
) -> None:
    verdict = evaluate_job(outcome(JOB, ended, code, at_work), passing(*written))
    again = set(verdict.retry)
    assert not again & verdict.records.keys()
    if ended is not ExitKind.INTERRUPTED:
        assert again | verdict.records.keys() == set(CELLS)
        # The starter limits the number of lost fork servers.
        is_limited = ended is ExitKind.SERVER_END or bool(verdict.records)
        assert is_limited, "a retry must not be able to go on for ever"
    finished = ended is ExitKind.EXITED and code == 0 and len(written) == len(CELLS)
    is_sure = finished or at_work is None or at_work.is_diagnosis
    unsure = set() if is_sure else set(at_work.cells)
    for cell, record in verdict.records.items():
        assert (record.status is Status.PASS) == (cell in written and cell not in unsure)


def test_a_restricted_job_has_the_given_cells_and_no_empty_opset() -> None:
    some = [CELL["tiny/17/reference"], CELL["tiny/19/cpu"]]
    assert restrict_job(JOB, some).cells() == tuple(some)
    assert [opset.opset for opset in restrict_job(JOB, some).opsets] == [17, 19]


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        (b"", ""),
        (b"one\ntwo\n", "one\ntwo"),
        (b"\n".join(b"%d" % n for n in range(50)), "\n".join(map(str, range(30, 50)))),
        (b"a\nFatal Python error: Segmentation fault\nb\n" + b"c\n" * 5, None),
        (b"\x1b[31mred\x1b[0m \xff\x00\n", "red \ufffd"),
        (b'File "/home/me/project/m.py" at 0x7f0011223344', 'File "m.py" at 0x\u2026'),
    ],
)
def test_the_tail_of_the_log_is_short_and_redacted(
    tmp_path: Path, log: bytes, tail: str | None
) -> None:
    current_job = job(tmp_path, SPEC)
    path = JobFolder(tmp_path).log(None)
    path.parent.mkdir()
    path.write_bytes(log)
    expected = "Fatal Python error: Segmentation fault\nb" + "\nc" * 5 if tail is None else tail
    assert read_log_tail(current_job, announcement(current_job.cells())) == expected


@pytest.mark.parametrize("first", ["Fatal Python error: Segmentation fault\n\n", ""])
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("{root}/models/net.py", "models/net.py:7"),
        (f"{exporter.__path__[0]}/worker/job_runner.py", ""),
        (f"{sysconfig.get_path('purelib')}/torch/nn/modules/module.py", ""),
        ("/elsewhere/net.py", ""),
    ],
)
def test_the_stack_of_a_crash_or_a_time_limit_names_the_line_of_the_model(
    tmp_path: Path, first: str, file: str, line: str
) -> None:
    current_job = job(tmp_path / "tiny", SPEC)
    path = JobFolder(tmp_path / "tiny").log(None)
    path.parent.mkdir(parents=True)
    path.write_text(
        f'  File "{tmp_path}/models/printed.py", line 3 in a warning\n'
        f"{first}Current thread 0x00007f (most recent call first):\n"
        f'  File "/lib/libtorch.py", line 1 in run\n'
        f'  File "{file.format(root=tmp_path)}", line 7 in forward\n'
    )
    ended = outcome(current_job, ExitKind.TIMEOUT, 0, announcement(current_job.cells()[:1]))
    records = evaluate_job(ended, {}).records
    assert records[current_job.cells()[0]].lines == ((line,) if line else ())
    assert records[current_job.cells()[1]].lines == ()  # it was not reached


def test_a_missing_log_has_an_empty_tail(tmp_path: Path) -> None:
    assert read_log_tail(job(tmp_path, SPEC), None) == ""


@pytest.mark.parametrize(
    ("memory", "line", "status"),
    [
        (8 << 30, "terminate called after throwing an instance of 'std::bad_alloc'", "killed"),
        (8 << 30, "what(): a shape of 2, 3", "crash"),
        (None, "terminate called after throwing an instance of 'std::bad_alloc'", "crash"),
    ],
)
def test_a_failed_allocation_under_a_limit_is_the_status_killed(
    tmp_path: Path, memory: int | None, line: str, status: str
) -> None:
    limited = job(tmp_path, spec("tiny", memory=memory))
    log = JobFolder(tmp_path).log(None)
    log.parent.mkdir()
    log.write_text(line)
    ended = outcome(limited, ExitKind.SIGNAL, signal.SIGABRT, announcement(limited.cells()[:1]))
    [record] = evaluate_job(ended, {}).records.values()
    assert record.status == status
    if status == "killed":
        assert record.message == (
            "needs more than the 8GiB that `memory` allows: the worker was terminated by SIGABRT "
            "while at convert"
        )


def test_a_full_disk_is_in_the_message(tmp_path: Path) -> None:
    current_job = job(tmp_path, SPEC)
    log = JobFolder(tmp_path).log(None)
    log.parent.mkdir()
    log.write_text("Traceback\nOSError: [Errno 28] No space left on device\n\nthe end\n")
    dead = evaluate_job(
        outcome(current_job, ExitKind.EXITED, 1, announcement(current_job.cells())), {}
    )
    reason = "OSError: [Errno 28] No space left on device"
    expected_message = f"the worker exited with code 1 while at convert: {reason}"
    assert {record.message for record in dead.records.values()} == {expected_message}


@pytest.mark.parametrize(
    ("file", "is_own"), [(supervisor.__file__, True), ("/project/model.py", False)]
)
def test_an_error_of_this_tool_is_no_fault_of_the_model(
    tmp_path: Path, file: str, *, is_own: bool
) -> None:
    current_job = job(tmp_path, SPEC)
    log = JobFolder(tmp_path).log(None)
    log.parent.mkdir()
    log.write_text(
        f'Traceback (most recent call last):\n  File "{file}", line 7, in f\n'
        "    sizes[1]\nIndexError: tuple index out of range\n"
    )
    dead = outcome(current_job, ExitKind.EXITED, 1, announcement(current_job.cells()))
    for record in evaluate_job(dead, {}).records.values():
        text = "an error of this tool, and not of the model: IndexError: tuple index out of range;"
        assert (text in record.message) is is_own


@pytest.mark.parametrize(
    ("ended", "code", "seconds", "expected"),
    [
        (ExitKind.SIGNAL, signal.SIGKILL, 1.0, True),
        (ExitKind.SIGNAL, signal.SIGSEGV, 1.0, False),
        (ExitKind.TIMEOUT, 0, 1.0, True),  # of wall time
        (ExitKind.TIMEOUT, 0, 61.0, False),  # of CPU time
        (ExitKind.SILENCE, 0, 1.0, False),
    ],
    ids=["killed", "crash", "wall time", "CPU time", "silence"],
)
def test_what_may_succeed_alone(
    ended: ExitKind, code: int, seconds: float, *, expected: bool
) -> None:
    result = outcome(JOB, ended, code, announcement(CELLS[:1]), seconds)
    record = evaluate_job(result, {}).records[CELLS[0]]
    beside = replace(result, has_company=True)
    assert may_succeed_alone(beside, record) is expected
    assert not may_succeed_alone(result, record), "it was alone"


def test_a_limit_of_the_manifest_is_no_matter_of_other_jobs() -> None:
    limited = job(Path("/nowhere/tiny"), spec(memory=1 << 30))
    result = replace(outcome(limited, ExitKind.EXITED), has_company=True)
    message = f"{memory_limit_message(1 << 30)}: at load"
    record = Record(cell=limited.cells()[0], status=Status.KILLED, message=message)
    assert not may_succeed_alone(result, record)
    other = record.model_copy(update={"message": "the worker was killed by SIGKILL"})
    assert may_succeed_alone(result, other)
