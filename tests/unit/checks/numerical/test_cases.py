from __future__ import annotations

from pathlib import Path

from exporter.checks.numerical.cases import Cases
from exporter.jobs.reference import Sample
from exporter.manifest import Case
from exporter.records.record import Status
from tests.unit.checks.contexts import Computes, Gives, as_kind, at, axes_of, declared, subject


def test_cases_are_compared(tmp_path: Path) -> None:
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    here = subject(tmp_path, declared(tmp_path), nine, cases=(Case(name="nine"),))
    assert Cases().applies(here)
    assert Cases()(here, Computes(axes_of()), "cpu").status is Status.PASS
    result = Cases()(here, Computes(axes_of(9)), "cpu")
    assert (result.check, result.status) == ("cases", Status.FAIL)
    assert result.message.startswith("nine: output 'y': error")


def test_a_case_without_a_sample_is_no_pass(tmp_path: Path) -> None:
    nine = as_kind(at(tmp_path, 1, 9), "case", "nine")
    here = subject(tmp_path, nine, cases=(Case(name="nine"), Case(name="ten")))
    result = Cases()(here, Computes(axes_of()), "cpu")
    assert (result.status, result.message) == (
        Status.ERROR,
        "PyTorch's outputs are missing for ten",
    )


def test_a_case_that_pytorch_refuses_fails(tmp_path: Path) -> None:
    refused = Sample(index=1, name="ten", kind="case", axes={"batch": 2}, error="IndexError: 10")
    result = Cases()(subject(tmp_path, refused, cases=(Case(name="ten"),)), Gives(), "cpu")
    assert (result.status, result.message) == (
        Status.FAIL,
        "ten: PyTorch itself refuses this case: IndexError: 10",
    )


def test_without_cases_there_is_no_cases_check(tmp_path: Path) -> None:
    assert not Cases().applies(subject(tmp_path, declared(tmp_path)))
