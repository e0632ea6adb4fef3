"""Foreseen failures: turns a raw outcome into `xfail` or `xpass`, strictly.

In: a `ModelSpec` and a `Record` as the worker wrote it. Out: the `Record` as it counts.

Records are stored raw and judged when they are collected, so that a changed expectation needs no
export.
"""

from __future__ import annotations

from datetime import date, timedelta

from exporter.manifest import Expectation, ModelSpec
from exporter.planning.plan import condition_matches
from exporter.records.record import Record, Status

#: Outcomes that an expectation can foresee without naming their message.
_PLAIN_FAILURES = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE)
#: An expectation that ends within so many days is named on the page.
_SOON = timedelta(days=14)
#: How `Record.expectation` begins where the expectation's day is over.
EXPIRED_PREFIX = "the expectation ended on "
_UNPROVED = (Status.SKIP, Status.UNAVAILABLE)


def apply_expectations(spec: ModelSpec, record: Record, today: date) -> Record:
    """The record with the manifest's expectations applied; unchanged where none means its cell."""
    expected = [item for item in spec.expect if condition_matches(item, record.cell)]
    if not expected or record.status in _UNPROVED:
        return record
    if record.status is Status.PASS:
        return record.model_copy(
            update={
                "status": Status.XPASS,
                "message": f"passes, although the manifest expects {_describe(expected[0])}; "
                "remove the expectation",
            }
        )
    met = [item for item in expected if _is_met(item, record)]
    current = [item for item in met if not _is_over(item, today)]
    if current:
        return _foreseen(record, current[0], today)
    if met:
        note = f"{EXPIRED_PREFIX}{met[0].until}: {_reason(met[0])}"
    else:
        note = "expected " + " or ".join(_describe(item) for item in expected)
    return record.model_copy(update={"expectation": note})


def is_foreseen(item: Expectation, record: Record, today: date) -> bool:
    """Whether the expectation foresees the failure of a record, raw or judged, of a cell it means.

    A record that was judged to be foreseen says no longer whether it was a crash; that does not
    matter to the expectation that foresaw it.
    """
    if record.status in (Status.PASS, Status.XPASS, *_UNPROVED):
        return False
    if record.status is Status.XFAIL:
        record = record.model_copy(update={"status": Status.FAIL})
    return _is_met(item, record) and not _is_over(item, today)


def _foreseen(record: Record, item: Expectation, today: date) -> Record:
    update: dict[str, object] = {"status": Status.XFAIL, "foreseen": _reason(item)}
    if item.until and date.fromisoformat(item.until) - today <= _SOON:
        note = f"the expectation '{item.reason}' ends on {item.until}; from then on this is red"
        update["notes"] = (*record.notes, note)
    return record.model_copy(update=update)


def _is_met(item: Expectation, record: Record) -> bool:
    text = f"{record.message}\n{record.detail}".casefold()
    says_so = item.match.casefold() in text
    # A crash, a timeout or a kill says little of itself: it must be named to be foreseen.
    is_kind = record.status in _PLAIN_FAILURES or bool(item.match)
    right_stage = item.stage is None or item.stage == record.stage
    right_check = item.check is None or item.check == record.check
    return says_so and is_kind and right_stage and right_check


def _is_over(item: Expectation, today: date) -> bool:
    return bool(item.until) and date.fromisoformat(item.until) < today


def _describe(item: Expectation) -> str:
    what = f"a failure at {item.stage}" if item.stage else "a failure"
    if item.check:
        what += f" of {item.check}"
    if item.match:
        what += f" with '{item.match}'"
    return f"{what} ({item.reason})"


def _reason(item: Expectation) -> str:
    return f"{item.reason} ({item.issue})" if item.issue else item.reason
