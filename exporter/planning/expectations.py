"""Apply the manifest's expected failures: change an outcome to `xfail` or `xpass`.

Input: a `ModelSpec` and a worker's `Record`. Output: the `Record` with its final status.

Records are stored with the worker's status and changed when they are read. A changed expectation
therefore needs no export.
"""

from __future__ import annotations

from datetime import date, timedelta

from exporter.manifest import Expectation, ModelSpec
from exporter.planning.plan import condition_matches
from exporter.records.record import Record, Status

#: Outcomes that match an expectation without a text in `match`.
_PLAIN_FAILURES = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE)
#: The page names an expectation that expires within this time.
_WARNING_TIME = timedelta(days=14)
#: The beginning of `Record.expectation` if the expectation expired.
EXPIRED_PREFIX = "the expectation expired on "
_UNPROVED = (Status.SKIP, Status.UNAVAILABLE)


def apply_expectations(spec: ModelSpec, record: Record, today: date) -> Record:
    """Return the record with the manifest's expectations applied."""
    expected = [item for item in spec.expect if condition_matches(item, record.cell)]
    if not expected or record.status in _UNPROVED:
        return record
    if record.status is Status.PASS:
        message = (
            f"passes, but the manifest expects {_describe(expected[0])}; remove the expectation"
        )
        return record.model_copy(update={"status": Status.XPASS, "message": message})
    matching = [item for item in expected if _is_match(item, record)]
    item = next((item for item in matching if not _is_expired(item, today)), None)
    if item is None:
        note = (
            f"{EXPIRED_PREFIX}{matching[0].until}: {_format_reason(matching[0])}"
            if matching
            else "expected " + " or ".join(_describe(item) for item in expected)
        )
        return record.model_copy(update={"expectation": note})
    update: dict[str, object] = {"status": Status.XFAIL, "foreseen": _format_reason(item)}
    if item.until and date.fromisoformat(item.until) - today <= _WARNING_TIME:
        note = f"expectation '{item.reason}' expires on {item.until}; the cell is red after it"
        update["notes"] = (*record.notes, note)
    return record.model_copy(update=update)


def is_foreseen(item: Expectation, record: Record, today: date) -> bool:
    """Return True if the expectation matches the failure of a record of its cell.

    The record may have its expectations applied. Its status is then `xfail`, even after a crash.
    """
    if record.status in (Status.PASS, Status.XPASS, *_UNPROVED):
        return False
    if record.status is Status.XFAIL:
        record = record.model_copy(update={"status": Status.FAIL})
    return _is_match(item, record) and not _is_expired(item, today)


def _is_match(item: Expectation, record: Record) -> bool:
    # A crash, a timeout or a kill has no clear cause, so an expectation must contain its text.
    has_kind = record.status in _PLAIN_FAILURES or bool(item.match)
    has_stage = item.stage is None or item.stage == record.stage
    has_check = item.check is None or item.check == record.check
    has_text = item.match.casefold() in f"{record.message}\n{record.detail}".casefold()
    return has_kind and has_stage and has_check and has_text


def _is_expired(item: Expectation, today: date) -> bool:
    return bool(item.until) and date.fromisoformat(item.until) < today


def _describe(item: Expectation) -> str:
    stage = f" at {item.stage}" if item.stage else ""
    check = f" of {item.check}" if item.check else ""
    text = f" with '{item.match}'" if item.match else ""
    return f"a failure{stage}{check}{text} ({item.reason})"


def _format_reason(item: Expectation) -> str:
    return f"{item.reason} ({item.issue})" if item.issue else item.reason
