"""Each reproducer that a red cell offers reproduces the failure; the others have a reason.

By default one trap of each kind of red and two sound models run. `REPRODUCERS=all` runs all of them
(`nox -f benchmarks/noxfile.py -s reproducers`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.records.record import Culprit, Stage, Status
from exporter.report.rows.failures import format_repro_command
from tests.script_runner import run_script
from tests.traps.prove import make_record
from tests.traps.reproduction import pick_kinds, write_script
from tests.traps.running import parameters
from tests.traps.table import ALL, SOUND_MODELS
from tests.traps.trap import Trap

#: PyTorch's exporter creates no file of a generator, so a script cannot create it again.
OWN = tuple(trap for trap in ALL if not trap.package)
RED = tuple(trap for trap in OWN if not (trap.is_sound or trap.tamper or trap.gap))
#: Scripts do not accept ties or large noise. The cells are green, so none is offered.
UNSUPPORTED = {
    "noise above 1e-3, declared",
    "topk of equal values",
    "topk of equal values under dynamo",
    "values at the indices of equal values",
    "order of equal values",
    "label of two sums that differ by rounding",
}
SOUND = tuple(
    trap for trap in SOUND_MODELS if not (trap.gap or trap.package) and trap.name not in UNSUPPORTED
)
#: Sound files whose names only this package repairs: a plain call of torch writes other names.
REPAIRED = {
    "one tensor as two outputs under dynamo, not optimised",
    "input as an output under dynamo, not optimised",
    "input as an output, with weights as inputs",
}
IS_LONG = os.environ.get("REPRODUCERS") == "all"


@pytest.mark.parametrize("trap", parameters(RED if IS_LONG else pick_kinds(RED)))
def test_a_red_cell_has_a_reproducer_or_a_reason(trap: Trap, tmp_path: Path) -> None:
    record = make_record(trap, tmp_path / "trap", diagnose=True)
    culprit = record.blame.culprit if record.blame else None
    has_repro = (
        record.status is not Status.INCONCLUSIVE
        and record.stage is not Stage.SOURCE
        and culprit not in (Culprit.CONTRACT, Culprit.MODEL)
        and record.check not in ("metric", "rollout")
        # Without a sample, the files around the pass show nothing more than the message.
        and not (record.broken_pass and record.blame is None)
    )
    assert bool(format_repro_command(record)) is has_repro
    folder = tmp_path / "repro"
    if has_repro:
        result = run_script(write_script(trap, record, tmp_path / "trap", folder))
        assert result.returncode == 1, result.stdout
        assert "\nit reproduces" in result.stdout
    else:
        with pytest.raises(ExporterError):
            write_script(trap, record, tmp_path / "trap", folder)
        assert not folder.exists()


@pytest.mark.parametrize("trap", parameters(SOUND if IS_LONG else pick_kinds(SOUND)))
def test_the_script_of_a_sound_model_shows_no_failure(trap: Trap, tmp_path: Path) -> None:
    record = make_record(trap, tmp_path / "trap", diagnose=True)
    assert format_repro_command(record) == ""
    result = run_script(write_script(trap, record, tmp_path / "trap", tmp_path / "repro"))
    is_repaired = trap.name in REPAIRED
    assert result.returncode == int(is_repaired), result.stdout
    assert ("it does not reproduce" in result.stdout) is not is_repaired


def test_a_script_that_fails_elsewhere_does_not_reproduce(tmp_path: Path) -> None:
    trap = next(trap for trap in RED if trap.verdict.stage is Stage.CONVERT)
    record = make_record(trap, tmp_path / "trap", diagnose=True)
    script = write_script(trap, record, tmp_path / "trap", tmp_path / "repro")
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("def build():", "def build():\n    import missing_package\n"))
    result = run_script(script)
    assert result.returncode == 2, result.stdout
    assert "it does not reproduce: another failure occurs" in result.stdout


def test_the_kinds_cover_each_stage_of_a_failure() -> None:
    stages = {trap.verdict.stage for trap in pick_kinds(RED)}
    assert stages == {*Stage}
