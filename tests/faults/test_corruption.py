"""Corrupt a build folder at random between runs of the real engine.

The session `faults` is the long form, which sets `FAULTS=long`. The counts are printed.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from tests.faults import campaign
from tests.faults.corruption import corrupt

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux forks"),
]

IS_LONG = os.environ.get("FAULTS") == "long"
ROUNDS = 300 if IS_LONG else 12


def snapshot(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []
    return {str(path): path.read_bytes() for path in files}


def refused(root: Path) -> Path | None:
    """Run the build. Return the path that its error message names, or None."""
    try:
        campaign.run(root)
    except ExporterError as error:
        if error.exit_code is not ExitCode.ENVIRONMENT:
            raise
        return root / "build" / str(error).partition(": ")[0]
    return None


@pytest.mark.parametrize("seed", [5, 6] if IS_LONG else [5])
def test_after_any_corruption_the_next_run_has_the_results_of_a_run_from_nothing(
    tmp_path: Path, seed: int
) -> None:
    campaign.make_project(tmp_path, models=6, opsets=4)
    build = tmp_path / "build"
    campaign.run(tmp_path)
    expected_contents = campaign.contents(tmp_path)
    assert set(expected_contents) == set(campaign.cells(tmp_path))
    draw = random.Random(seed)
    acts: Counter[str] = Counter()
    refusals = 0
    for _ in range(ROUNDS):
        done = [corrupt(build, draw) for _ in range(draw.randrange(1, 6))]
        acts.update(act for act, _ in done)
        outside = snapshot(tmp_path / "elsewhere")
        while path := refused(tmp_path):
            assert os.path.lexists(path), done
            refusals += 1
            is_folder = path.is_dir() and not path.is_symlink()
            shutil.rmtree(path) if is_folder else path.unlink()  # `rmtree` would wait for a pipe
        assert campaign.contents(tmp_path) == expected_contents, done
        assert snapshot(tmp_path / "elsewhere") == outside, done
        assert campaign.run(tmp_path).reasons == {}, done
    assert campaign.find_running(tmp_path) == []
    campaign.print_counts(
        f"{acts.total()} acts of {len(acts)} kinds, {refusals} of them refused by name"
    )
