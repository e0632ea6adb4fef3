"""The decision whether a lost host is the fault of a job."""

from __future__ import annotations

from pathlib import Path

from exporter.pipeline.cluster.attempt import JobAttempt
from exporter.pipeline.engine import Task
from tests.unit.pipeline import builders


class Attempt(JobAttempt):
    """An attempt that announces its first stage at once."""

    def begin(self, host: str) -> bool:
        is_again = super().begin(host)
        self.announcement = builders.announcement(())
        return is_again


def make_attempt(tmp_path: Path, kind: type[JobAttempt] = Attempt) -> JobAttempt:
    task = Task(job=builders.job(tmp_path, builders.spec()), seconds=60)
    return kind(number=1, task=task)


def test_one_lost_host_is_not_the_fault_of_the_job(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    assert not attempt.begin("a")
    assert attempt.begin("b")
    assert attempt.losses == ["a"]
    assert not attempt.is_culprit


def test_a_second_host_makes_the_job_the_culprit(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    attempt.begin("a")
    attempt.begin("b")
    assert attempt.lose_host() == "b"
    assert attempt.is_culprit


def test_a_cluster_of_one_host_ends_three_times(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    for _ in range(3):
        attempt.begin("a")
    assert not attempt.is_culprit
    attempt.begin("a")
    assert attempt.is_culprit


def test_a_host_that_did_not_start_the_job_does_not_count(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path)
    assert attempt.lose_host() == ""
    assert attempt.losses == []


def test_an_end_before_the_first_stage_is_not_the_fault_of_the_job(tmp_path: Path) -> None:
    attempt = make_attempt(tmp_path, JobAttempt)
    for host in "abcdef":
        attempt.begin(host)
    assert attempt.losses == []
    assert not attempt.is_culprit
    attempt.begin("g")  # the sixth end
    assert attempt.is_culprit
