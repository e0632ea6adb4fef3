"""`record --check` names each export that has no entry, also one that cannot be described."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.commands.recording.command import _write_entries
from exporter.commands.recording.observation import Observation
from exporter.core.errors import ExitCode


@pytest.mark.parametrize(
    ("observation", "line"),
    [
        (Observation(class_name="Net"), "Net: has no entry"),
        (Observation(problem="ValueError: no"), "a model: its export is not described: ValueErr"),
        (Observation(class_name="Net", class_file="FOLDER/net.py"), "net.py:Net: has no entry"),
    ],
)
def test_a_class_without_a_file_has_no_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], observation: Observation, line: str
) -> None:
    (tmp_path / "manifests").mkdir()
    # An entry whose class cannot be found is not that of an export without a class.
    entry = 'format = 1\n[models.net]\nsource = "gone.py:Net"\nopsets = 17\n'
    entry += 'inputs = [{ name = "x", shape = [1] }]\noutputs = [{ name = "y", shape = [1] }]\n'
    (tmp_path / "manifests/net.toml").write_text(entry)
    if observation.class_file:
        file = observation.class_file.replace("FOLDER", str(tmp_path))
        observation = observation.model_copy(update={"class_file": file})
    assert _write_entries([observation], tmp_path, {"check": True}) == ExitCode.RED
    assert line in capsys.readouterr().out
