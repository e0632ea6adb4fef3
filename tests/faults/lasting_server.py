"""A fork server for several runs of a test, and records without their times."""

from __future__ import annotations

from typing import Any

from exporter.processes import ForkServerStarter


class LastingStarter(ForkServerStarter):
    """A fork server that continues after a run."""

    def close(self) -> None:
        """Keep the server."""

    def end(self) -> None:
        """End the server."""
        super().close()


def timeless(value: Any) -> Any:
    """Return the JSON value of a record without the fields `seconds`."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value
