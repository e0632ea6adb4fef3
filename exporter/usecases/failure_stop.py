"""Stop an export after the first model with a red cell."""

from __future__ import annotations

from exporter.core.errors import StoppedByFailure
from exporter.jobs.job import Announcement
from exporter.pipeline import BuildObserver, Decisions
from exporter.records.record import CellId, Record


class FailFastObserver:
    """Forwards all events, and stops the build.

    Args:
        observer: Receives the events.
    """

    def __init__(self, observer: BuildObserver) -> None:
        self._observer = observer
        self._red: CellId | None = None
        self._is_stopping = False

    def on_decisions(self, decisions: Decisions) -> None:
        """Forward the event."""
        self._observer.on_decisions(decisions)

    def on_announcement(self, announcement: Announcement) -> None:
        """Forward the event."""
        self._observer.on_announcement(announcement)

    def on_cell_done(self, record: Record) -> None:
        """Forward the event, and store the first red cell."""
        self._observer.on_cell_done(record)
        if record.status.is_red and self._red is None:
            self._red = record.cell

    def on_model_done(self, model: str) -> None:
        """Forward the event.

        Raises:
            StoppedByFailure: once, if the model has a red cell.
        """
        self._observer.on_model_done(model)
        if self._red and self._red.model == model and not self._is_stopping:
            self._is_stopping = True  # the engine reports the models that it ends
            raise StoppedByFailure(str(self._red))

    def on_note(self, message: str) -> None:
        """Forward the event."""
        self._observer.on_note(message)
