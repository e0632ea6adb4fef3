"""An export that stops after the first model with a red cell."""

from __future__ import annotations

import click
import pytest

from exporter.cli import entry_point
from exporter.core.errors import ExitCode, StoppedByFailure
from exporter.records.record import Status
from exporter.usecases.failure_stop import FailFastObserver
from tests.unit.factory import make_record
from tests.unit.pipeline.builders import BuildLog


def test_the_build_stops_when_the_red_model_is_in_place() -> None:
    log = BuildLog()
    observer = FailFastObserver(log)
    observer.on_cell_done(make_record("green/18/cpu"))
    observer.on_model_done("green")
    observer.on_cell_done(make_record("red/18/cpu", Status.FAIL))
    observer.on_cell_done(make_record("red/19/cpu", Status.FAIL))
    observer.on_model_done("other")
    with pytest.raises(StoppedByFailure) as stop:
        observer.on_model_done("red")
    assert str(stop.value) == "red/18/cpu"
    # The engine ends the other jobs and reports their finished models.
    observer.on_model_done("red")
    observer.on_note("note")
    assert log.models == ["green", "other", "red", "red"]
    assert len(log.records) == 3
    assert log.notes == ["note"]


def test_an_expected_failure_stops_nothing() -> None:
    observer = FailFastObserver(BuildLog())
    observer.on_cell_done(make_record("net/18/cpu", Status.XFAIL))
    observer.on_model_done("net")


def test_the_command_exits_as_for_red_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise StoppedByFailure("red/18/cpu")

    monkeypatch.setattr(entry_point, "exporter", command)
    assert entry_point.run([]) == ExitCode.RED
    assert "stopped at red/18/cpu; finished results are kept" in capsys.readouterr().err
