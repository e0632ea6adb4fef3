"""The current date."""

from __future__ import annotations

from datetime import UTC, date, datetime


def get_today() -> date:
    """Return the date in UTC, by which expectations expire: it is the same on all machines."""
    return datetime.now(tz=UTC).date()
