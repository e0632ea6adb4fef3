"""A failure for lack of resources is retried."""

from __future__ import annotations

import pytest

from exporter.cache.fingerprint import TRANSIENT_STATUSES
from exporter.records.record import Record, Status
from exporter.worker.process.setup import mark_resource_failures
from tests.unit.factory import make_record, make_spec

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
