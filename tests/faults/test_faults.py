"""Run the real engine and fork server with workers that die and parents that are killed.

The session `faults` is the long form, which sets `FAULTS=long`. The counts are printed.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from exporter.processes import fork_server_client
from exporter.records.record import Status
from tests.faults import campaign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

IS_LONG = os.environ.get("FAULTS") == "long"
MODELS, KILLS = (100, 50) if IS_LONG else (20, 6)
OPSETS = 10
#: The status of a cell by the action of its model.
WAYS = {
    "killed": Status.KILLED,
    "segfault": Status.CRASH,
    "exits": Status.CRASH,
    "raises": Status.CRASH,
    "goes_elsewhere": Status.CRASH,
    "allocates": Status.CRASH,
    "fills_the_disk": Status.CRASH,
    "deletes_its_folder": Status.CRASH,
    "puts_a_file_for_the_records": Status.CRASH,
    "puts_a_link_for_its_folder": Status.CRASH,
    "puts_a_pipe_for_the_record": Status.CRASH,
    "puts_a_pipe_for_the_log": Status.CRASH,
    "puts_a_huge_record": Status.CRASH,
    "puts_a_pipe_for_the_announcement": Status.TIMEOUT,
    "daemonizes": Status.PASS,
    "deletes_its_folder_and_hangs": Status.TIMEOUT,
    "hangs": Status.TIMEOUT,
    "hangs_in_c": Status.TIMEOUT,
    "forks": Status.TIMEOUT,
    "prints_without_end": Status.TIMEOUT,
}
#: Actions that affect more than their own cells.
DESTROY = ("folder", "records")


def test_workers_killed_at_random_lose_only_the_announced_cells(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=MODELS, opsets=OPSETS)
    draw = random.Random(5)
    cells = campaign.cells(tmp_path)
    kinds = {
        "killed": Status.KILLED,
        "segfault": Status.CRASH,
        "exits": Status.CRASH,
        "raises": Status.CRASH,
    }
    ends = {cell: draw.choice(list(kinds)) for cell in cells if draw.random() < 0.05}
    campaign.set_failures(tmp_path, ends)
    log = campaign.run(tmp_path)
    records = campaign.records(tmp_path)
    expected = {cell: kinds[ends[cell]] if cell in ends else Status.PASS for cell in cells}
    assert {cell: record.status for cell, record in records.items()} == expected
    assert len(log.records) == len(cells)
    assert all("while at convert" in records[cell].message for cell in ends)
    assert set(campaign.count_built(tmp_path).values()) == {1}
    assert campaign.find_running(tmp_path) == []
    campaign.set_failures(tmp_path, {})
    assert set(campaign.run(tmp_path).reasons) == set(ends)
    assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
    assert campaign.count_built(tmp_path) == Counter(cells)
    campaign.print_counts(
        f"{len(cells)} cells, {len(ends)} workers died: {dict(Counter(ends.values()))}"
    )


def test_a_parent_killed_at_random_loses_at_most_the_announced_cells(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=KILLS * 2, opsets=OPSETS, pause=0.05)
    cells = campaign.cells(tmp_path)
    kills = _kill_at_random(tmp_path, KILLS, random.Random(5))
    campaign.run(tmp_path)
    assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
    built = campaign.count_built(tmp_path)
    repeated = sum(built.values()) - len(cells)
    assert set(built) == set(cells)
    assert kills >= KILLS // 2
    assert repeated <= kills * campaign.JOBS
    assert "Traceback" not in (tmp_path / "errors.log").read_text()
    campaign.print_counts(
        f"{len(cells)} cells, the parent killed {kills} times: {repeated} cells built twice"
    )


@pytest.mark.campaign
def test_a_parent_killed_while_two_workers_share_a_model_loses_no_more(tmp_path: Path) -> None:
    built: Counter[str] = Counter()
    draw = random.Random(5)
    kills = 0
    rounds = KILLS // 3
    for seed in range(rounds + 1):
        campaign.make_project(tmp_path, models=1, opsets=OPSETS * 3, pause=0.1, seed=seed)
        if seed:  # the first run has no known times
            kills += _kill_at_random(tmp_path, 3, draw)
        campaign.run(tmp_path)
        assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
        assert set(campaign.count_built(tmp_path) - built) == set(campaign.cells(tmp_path))
        built = campaign.count_built(tmp_path)
        assert (tmp_path / "divided").exists() is (seed > 0)
    repeated = sum(built.values()) - (rounds + 1) * OPSETS * 3
    assert kills >= rounds
    assert repeated <= kills * campaign.JOBS
    assert "Traceback" not in (tmp_path / "errors.log").read_text()
    campaign.print_counts(
        f"a model of two workers, the parent killed {kills} times: {repeated} cells built twice"
    )


def _kill_at_random(root: Path, most: int, draw: random.Random) -> int:
    """Start runs and kill each. Return the number of killed runs."""
    for kills in range(most):
        before = sum(campaign.count_built(root).values())
        process = campaign.start(root)
        deadline = time.monotonic() + 60
        # A start takes nearly a second. The kill should hit the parent during its work.
        while process.poll() is None and sum(campaign.count_built(root).values()) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(draw.random() * 0.5)
        if process.poll() is not None:
            return kills
        process.kill()
        process.wait()
        assert campaign.find_running(root) == []
    return most


@pytest.mark.campaign
def test_each_misbehavior_fails_its_own_cell(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=len(WAYS) + 2, opsets=2, timeout=2.0)
    ends = {f"m{index:03}/8/cpu": kind for index, kind in enumerate(WAYS)}
    campaign.set_failures(tmp_path, ends)
    campaign.run(tmp_path)
    records = campaign.records(tmp_path)
    assert set(records) == set(campaign.cells(tmp_path))
    assert {kind: records[cell].status for cell, kind in ends.items()} == WAYS
    for cell, record in records.items():
        kind = ends.get(cell.replace("/7/", "/8/"), "")
        # A model that destroys its own files is rebuilt. The results of others stay.
        if cell not in ends and not any(word in kind for word in DESTROY):
            assert record.status is Status.PASS, (cell, kind, record.message)
    assert campaign.find_running(tmp_path) == []
    # Nothing was written through the symlink.
    assert [list(path.iterdir()) for path in tmp_path.glob("elsewhere-*")] == [[]]
    campaign.set_failures(tmp_path, {})
    campaign.run(tmp_path)
    assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
    campaign.print_counts(f"{len(WAYS)} ways to misbehave, {len(records)} cells")


@pytest.mark.parametrize("way", ["stops_the_fork_server", "writes_to_the_fork_server"])
def test_an_attack_on_the_fork_server_fails_its_own_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(fork_server_client, "_QUIET", 0.2)
    monkeypatch.setattr(fork_server_client, "_RESPONSE_LIMIT", 0.5)
    campaign.make_project(tmp_path, models=4, opsets=2, timeout=30.0, pause=0.1)
    campaign.set_failures(tmp_path, {"m001/8/cpu": way})
    campaign.run(tmp_path)
    statuses = {cell: record.status for cell, record in campaign.records(tmp_path).items()}
    assert statuses.pop("m001/8/cpu") is Status.CRASH
    assert set(statuses.values()) == {Status.PASS}
    assert len(statuses) == 7
    assert campaign.find_running(tmp_path) == []


@pytest.mark.parametrize(
    "way",
    [way for way in WAYS if IS_LONG or way in ("segfault", "hangs")],
)
def test_a_misbehaving_worker_does_not_affect_the_other_part(tmp_path: Path, way: str) -> None:
    campaign.make_project(tmp_path, models=1, opsets=8, timeout=2.0)
    campaign.run(tmp_path)
    before = campaign.count_built(tmp_path)
    campaign.make_project(tmp_path, models=1, opsets=8, timeout=2.0, seed=1)
    campaign.set_failures(tmp_path, {"m000/10/cpu": way})
    campaign.run(tmp_path)
    assert (tmp_path / "divided").exists()
    records = campaign.records(tmp_path)
    assert set(records) == set(campaign.cells(tmp_path))
    assert records["m000/10/cpu"].status is WAYS[way]
    built = campaign.count_built(tmp_path) - before
    for cell in ("m000/7/cpu", "m000/9/cpu", "m000/11/cpu", "m000/13/cpu"):
        assert records[cell].status is Status.PASS
        assert built[cell] == 1
    assert campaign.find_running(tmp_path) == []
    campaign.set_failures(tmp_path, {})
    campaign.run(tmp_path)
    assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
