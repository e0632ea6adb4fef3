"""An edited file of an installed package is a change, and a reinstallation of a release is none."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cache import installed_files
from exporter.cache.installed_files import describe_installed_files, have_installed_files_changed
from exporter.cache.states import find_edit, list_searched_folders, read_distribution
from tests.distributions import write_distribution

_FILES = {
    "acme/__init__.py": b"FACTOR = 2.0",
    "acme/_fast.so": b"\x7fELF native",
    "acme/table.json": b'{"a": 1}',
    "acme/tests/test_net.py": b"",
    "acme/include/net.h": b"int a;",
    "space/inner.py": b"K = 1",
}
_LATER = 10**19


def install(site: Path) -> Path:
    """Install a package as pip does, which writes the list last."""
    lines = ["acme-1.0.dist-info/METADATA,,", "acme-1.0.dist-info/RECORD,,", "../bin/run,,"]
    for name, content in _FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(content)}")
    write_distribution(site, "acme", RECORD="\n".join(lines))
    return site


def read_state(site: Path) -> str:
    return read_distribution.__wrapped__("acme", str(site))[0]


def touch_all(site: Path) -> None:
    for path in site.rglob("*"):
        os.utime(path)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (lambda site: (site / "acme/__init__.py").write_text("FACTOR = 4.0"), "__init__.py"),
    "native code": (lambda site: (site / "acme/_fast.so").write_bytes(b"other"), "_fast.so"),
    "data": (lambda site: (site / "acme/table.json").write_text('{"a": 2}'), "table.json"),
    "older": (
        lambda site: (
            (site / "acme/table.json").write_text("{}"),
            os.utime(site / "acme/table.json", (1, 1)),
        ),
        "table.json",
    ),
    "namespace": (lambda site: (site / "space/inner.py").write_text("K = 2"), "inner.py"),
    "removed": (lambda site: (site / "acme/_fast.so").unlink(), "_fast.so"),
    "touched": (touch_all, ""),
    "same content": (
        lambda site: (site / "acme/__init__.py").write_bytes(_FILES["acme/__init__.py"]),
        "",
    ),
    "reinstalled": (install, ""),
    "without tests": (lambda site: (site / "acme/tests/test_net.py").unlink(), ""),
    "test": (lambda site: (site / "acme/tests/test_net.py").write_text("other"), ""),
    "header": (lambda site: (site / "acme/include/net.h").write_text("int b;"), ""),
    "script": (lambda site: (site / "run").touch(), ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_edit_of_an_installed_file_is_a_change(tmp_path: Path, name: str) -> None:
    change, edited = CHANGES[name]
    before = read_state(install(tmp_path))
    change(tmp_path)
    assert (read_state(tmp_path) != before) == bool(edited)
    assert find_edit("acme", str(tmp_path)).endswith(edited)
    assert bool(find_edit("acme", str(tmp_path))) == bool(edited)


def test_two_edits_differ_and_an_undone_one_is_none(tmp_path: Path) -> None:
    before = read_state(install(tmp_path))
    path = tmp_path / "acme/__init__.py"
    states = {before}
    for text in ("FACTOR = 4.0", "FACTOR = 5.0"):
        path.write_text(text)
        states.add(read_state(tmp_path))
    assert len(states) == 3
    path.write_bytes(_FILES["acme/__init__.py"])
    assert read_state(tmp_path) == before


def test_a_list_without_hashes_counts_the_content(tmp_path: Path) -> None:
    write_distribution(tmp_path, "acme", RECORD="acme.py,,\n'odd")
    (tmp_path / "acme.py").write_text("one")
    before = read_state(tmp_path)
    touch_all(tmp_path)
    assert read_state(tmp_path) == before
    (tmp_path / "acme.py").write_text("two")
    assert read_state(tmp_path) != before


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages from which this process has read a state."""
    monkeypatch.setattr(installed_files, "_STAMPS", {})
    read_state(install(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "is_unchanged"),
    [
        (lambda _: None, True),
        (lambda site: (site / "acme/__init__.py").write_text("FACTOR = 4.0"), False),
        (lambda site: (site / "acme/_fast.so").unlink(), False),
        (lambda site: (site / "other-1.0.dist-info").mkdir(), False),
        (lambda site: (site / "acme-1.0.dist-info/direct_url.json").touch(), False),
        (lambda site: (site / "acme/include/net.h").write_text("int b;"), True),
    ],
)
def test_unchanged_stamps_spare_the_comparison(
    site: Path, change: Callable[[Path], object], *, is_unchanged: bool
) -> None:
    folders = list_searched_folders(str(site))
    described = describe_installed_files(folders, _LATER)
    assert described is not None
    assert described.are_unchanged(folders)
    assert not described.are_unchanged(folders[1:])
    change(site)
    assert described.are_unchanged(folders) == is_unchanged
    assert have_installed_files_changed() != is_unchanged


def test_the_stamps_are_those_of_the_first_state(site: Path) -> None:
    (site / "acme/__init__.py").write_text("FACTOR = 4.0")
    read_state(site)
    described = describe_installed_files([], _LATER)
    assert described is not None
    assert not described.are_unchanged([])


def test_files_that_changed_a_moment_ago_have_no_stamps(site: Path) -> None:
    changed = (site / "acme/_fast.so").stat().st_ctime_ns
    assert describe_installed_files([], changed) is None
