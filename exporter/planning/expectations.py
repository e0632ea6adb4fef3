"""Apply the manifest's expected failures: change an outcome to `xfail` or `xpass`.

Every failing check needs an expectation that names it, so a foreseen failure hides no other one.
Records are stored with the worker's status and changed when they are read. A changed expectation
therefore needs no export.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from exporter.core.known_names import CHECK_STAGES
from exporter.manifest import Expectation, ModelSpec
from exporter.manifest.syntax.versions import is_in_range
from exporter.planning.plan import condition_matches
from exporter.records.record import Record, Stage, Status

#: Outcomes that match an expectation without a text in `match`.
_PLAIN_FAILURES = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE)
#: The page names an expectation that expires within this time.
_WARNING_TIME = timedelta(days=14)
#: The beginning of `Record.expectation` if the expectation expired.
EXPIRED_PREFIX = "the expectation expired on "
#: The part of a fingerprint that begins with the version of torch.
_TORCH = "tool.torch"
_UNPROVED = (Status.SKIP, Status.UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFailure:
    """One failure of a red cell: of a check, or of a stage without a check."""

    check: str
    """The check, or "" for a stage."""
    stage: Stage | None
    message: str
    detail: str = ""
    is_plain: bool
    """False for a crash, a timeout and a kill."""


def apply_expectations(spec: ModelSpec, record: Record, today: date) -> Record:
    """Return the record with the manifest's expectations applied."""
    expected = [item for item in spec.expect if applies_to(item, record)]
    if not expected or record.status in _UNPROVED:
        return record
    if record.status is Status.PASS:
        message = (
            f"passes, but the manifest expects {_describe(expected[0])}; remove the expectation"
        )
        return record.model_copy(update={"status": Status.XPASS, "message": message})
    failures = list_failures(record)
    current = [item for item in expected if not _is_expired(item, today)]
    foreseen = [_find_match(current, failure) for failure in failures]
    if None in foreseen:
        note = _explain_unforeseen(failures, expected, current)
        return record.model_copy(update={"expectation": note})
    items = list(dict.fromkeys(item for item in foreseen if item))
    reasons = "; ".join(dict.fromkeys(_format_reason(item) for item in items))
    notes = (
        f"expectation '{item.reason}' expires on {item.until}; the cell is red after it"
        for item in items
        if item.until and date.fromisoformat(item.until) - today <= _WARNING_TIME
    )
    update = {
        "status": Status.XFAIL,
        "foreseen": reasons,
        "notes": (*record.notes, *notes),
    }
    return record.model_copy(update=update)


def applies_to(item: Expectation, record: Record) -> bool:
    """Return True if the cell and the version of torch are those of the expectation."""
    return condition_matches(item, record.cell) and is_for_version(item, record)


def is_for_version(item: Expectation, record: Record) -> bool:
    """Return True if the expectation concerns the version of torch that the record contains."""
    return is_in_range(record.fingerprint.get(_TORCH, ""), item.torch)


def list_failures(record: Record) -> tuple[CellFailure, ...]:
    """Return every failure of a red cell; each needs an expectation.

    The record may have its expectations applied. Its status is then `xfail`, even after a crash.
    """
    # A crash, a timeout or a kill has no clear cause, so an expectation must contain its text.
    is_plain = record.status in (*_PLAIN_FAILURES, Status.XFAIL)
    first = CellFailure(
        check=record.check or "",
        stage=record.stage,
        message=record.message,
        detail=record.detail,
        is_plain=is_plain,
    )
    messages = {each.check: each.message for each in record.checks}
    others = (
        CellFailure(
            check=check,
            stage=Stage(CHECK_STAGES[check]),
            message=messages[check],
            is_plain=is_plain,
        )
        for check in record.failed_checks
        if check != record.check
    )
    return (first, *others)


def is_foreseen(item: Expectation, record: Record, today: date) -> bool:
    """Return True if the expectation matches a failure of a record of its cell."""
    if record.status in (Status.PASS, Status.XPASS, *_UNPROVED) or _is_expired(item, today):
        return False
    if not is_for_version(item, record):
        return False
    return any(matches_failure(item, failure) for failure in list_failures(record))


def matches_failure(item: Expectation, failure: CellFailure) -> bool:
    """Return True if the expectation names the check and has the right stage and text."""
    has_kind = failure.is_plain or bool(item.match)
    has_stage = item.stage is None or item.stage == failure.stage
    has_check = failure.check in item.checks if failure.check else not item.checks
    has_text = item.match.casefold() in f"{failure.message}\n{failure.detail}".casefold()
    return has_kind and has_stage and has_check and has_text


def _find_match(items: Sequence[Expectation], failure: CellFailure) -> Expectation | None:
    return next((item for item in items if matches_failure(item, failure)), None)


def _explain_unforeseen(
    failures: Sequence[CellFailure], expected: Sequence[Expectation], current: Sequence[Expectation]
) -> str:
    """Return the text for `Record.expectation`."""
    unforeseen = [failure for failure in failures if not _find_match(current, failure)]
    if expired := _find_match(expected, unforeseen[0]):
        return f"{EXPIRED_PREFIX}{expired.until}: {_format_reason(expired)}"
    note = "expected " + " or ".join(_describe(item) for item in expected)
    names = ", ".join(f"'{failure.check}'" for failure in unforeseen if failure.check)
    return f"{note}; no expectation with `check` matches {names}" if names else note


def _is_expired(item: Expectation, today: date) -> bool:
    return bool(item.until) and date.fromisoformat(item.until) < today


def _describe(item: Expectation) -> str:
    stage = f" at {item.stage}" if item.stage else ""
    check = f" of {' and '.join(item.checks)}" if item.checks else ""
    text = f" with '{item.match}'" if item.match else ""
    version = f" with torch {item.torch}" if item.torch else ""
    return f"a failure{stage}{check}{text}{version} ({item.reason})"


def _format_reason(item: Expectation) -> str:
    return f"{item.reason} ({item.issue})" if item.issue else item.reason
