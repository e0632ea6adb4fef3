"""Errors that cannot be printed are failures, and a changed import path is repaired."""

from __future__ import annotations

import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

import pytest

from exporter.records.record import Stage
from exporter.worker.process.failure import Failure, wrap_errors


class UnprintableError(Exception):
    """An error that fails if it is printed."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnprintableError(), "UnprintableError: <exception str() failed>"),
        (ValueError("bad \udcff name"), "ValueError: bad \N{REPLACEMENT CHARACTER} name"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_unprintable_error_is_a_failure_with_a_message(error: Exception, message: str) -> None:
    with pytest.raises(Failure) as caught, wrap_errors(Stage.SOURCE):
        raise error
    assert caught.value.message == message
    assert caught.value.detail
    (caught.value.message + caught.value.detail).encode()


@pytest.mark.parametrize("path", [[], ["elsewhere"], None])
def test_removed_entries_of_the_import_path_are_restored(
    monkeypatch: pytest.MonkeyPatch, path: list[str] | None
) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with wrap_errors(Stage.SOURCE):
        monkeypatch.setattr(sys, "path", path)
        sys.meta_path.clear()
    assert sys.path[: len(path or [])] == (path or [])
    missing = set(before) - set(sys.path)
    # Packages such as setuptools add folders of their own inside it.
    assert not any(entry.endswith("site-packages") for entry in missing)
    assert {BuiltinImporter, FrozenImporter, PathFinder} <= set(sys.meta_path)
