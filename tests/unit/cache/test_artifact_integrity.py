"""Only unchanged files are up to date."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from exporter.cache import artifact_integrity
from exporter.cache.artifact_integrity import ArtifactVerifier, SourceStamps
from exporter.cache.states import read_source_state
from exporter.records.record import Artifact
from tests.unit.factory import make_artifact

CONTENT = b"a model"
WEIGHTS = b"its weights"
DATA = f"weights-{hashlib.sha256(WEIGHTS).hexdigest()[:16]}.data"


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "18.onnx").write_bytes(CONTENT)
    (folder / DATA).write_bytes(WEIGHTS)
    return make_artifact(
        "net", 18, sha256=hashlib.sha256(CONTENT).hexdigest(), external_data=(DATA,)
    )


@pytest.mark.parametrize("name", ["18.onnx", DATA])
def test_every_change_of_a_file_is_found(tmp_path: Path, artifact: Artifact, name: str) -> None:
    def find_problem() -> str:
        return ArtifactVerifier(tmp_path).find_problem(artifact)

    path = tmp_path / "net" / name
    content = path.read_bytes()
    for at in range(len(content)):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            path.write_bytes(changed)
            assert "is not the file that was proved" in find_problem()
    path.unlink()
    assert find_problem() == f"net/{name} is missing"
    path.mkdir()
    assert find_problem() == f"net/{name} is missing"
    path.rmdir()
    (tmp_path / "elsewhere").write_bytes(content)
    path.symlink_to(tmp_path / "elsewhere")
    assert find_problem() == f"net/{name} is missing"


def test_a_change_with_a_restored_mtime_is_found(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "exporter.cache.artifact_integrity._CLOCK_RESOLUTION", -1
    )  # new files are stamped at once
    first = ArtifactVerifier(tmp_path)
    assert first.find_problem(artifact) == ""
    first.save()
    path = tmp_path / "net/18.onnx"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"A")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert (
        ArtifactVerifier(tmp_path).find_problem(artifact)
        == "net/18.onnx is not the file that was proved"
    )


def test_an_unchanged_file_is_not_read_again(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cache.artifact_integrity._CLOCK_RESOLUTION", -1)
    first = ArtifactVerifier(tmp_path)
    assert first.find_problem(artifact) == ""
    first.save()

    def reads(path: Path) -> str:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr("exporter.cache.artifact_integrity.hash_source", reads)
    assert ArtifactVerifier(tmp_path).find_problem(artifact) == ""


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"files": {"net/18.onnx": {}}}', b"\xff"])
def test_damaged_stamps_only_cost_time(tmp_path: Path, artifact: Artifact, text: bytes) -> None:
    (tmp_path / "stamps.json").write_bytes(text)
    assert ArtifactVerifier(tmp_path).find_problem(artifact) == ""


def test_a_fresh_file_gets_no_stamp(tmp_path: Path, artifact: Artifact) -> None:
    intact = ArtifactVerifier(tmp_path)
    assert intact.find_problem(artifact) == ""
    intact.save()
    assert not (tmp_path / "stamps.json").exists()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of the large sources that are hashed; a file of 8 bytes is large."""
    monkeypatch.setattr(artifact_integrity, "_LARGE_SIZE", 8)
    paths: list[Path] = []

    def hash_source(path: Path) -> str:
        paths.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(artifact_integrity, "hash_source", hash_source)
    return paths


def read_weights(root: Path) -> str:
    return SourceStamps(root / "build").read_state(root / "w.bin", "w.bin", "0" * 64)


def test_unchanged_weights_are_hashed_once_for_all_commands(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_integrity, "_CLOCK_RESOLUTION", -1)
    (tmp_path / "w.bin").write_bytes(WEIGHTS)
    expected = read_source_state(tmp_path / "w.bin")
    assert read_weights(tmp_path) == expected
    assert not (tmp_path / "build").exists(), "a command without results creates no folder"
    (tmp_path / "build").mkdir()
    assert [read_weights(tmp_path) for _ in range(3)] == [expected] * 3
    assert len(hashed) == 2
    (tmp_path / "build/source-stamps.json").write_text("damaged")
    assert read_weights(tmp_path) == expected
    assert len(hashed) == 3


def test_weights_of_another_content_are_found(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size and the time of the last change of its content are those of the stamped file."""
    monkeypatch.setattr(artifact_integrity, "_CLOCK_RESOLUTION", -1)
    (tmp_path / "build").mkdir()
    path = tmp_path / "w.bin"
    path.write_bytes(WEIGHTS)
    before, state = read_weights(tmp_path), path.stat()

    def restore_time() -> None:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (
            state.st_size,
            state.st_mtime_ns,
        )

    with path.open("r+b") as file:  # in place: the inode stays
        file.write(b"I")
    restore_time()
    edited = read_weights(tmp_path)
    assert edited == read_source_state(path) != before
    other = tmp_path / "other"
    other.write_bytes(WEIGHTS)
    other.replace(path)
    restore_time()
    assert read_weights(tmp_path) == before
    path.unlink()
    path.symlink_to("other")
    assert read_weights(tmp_path) == "link other"
    path.unlink()
    assert read_weights(tmp_path) == "missing"
    assert hashed == [path] * 3


def test_weights_that_change_while_they_are_hashed_have_no_stamp(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changed shortly before its hash began can change again with the same time."""
    monkeypatch.setattr(artifact_integrity, "_CLOCK_RESOLUTION", 10**9)
    (tmp_path / "build").mkdir()
    path = tmp_path / "w.bin"
    path.write_bytes(WEIGHTS)
    began = path.stat().st_ctime_ns + 1
    times = iter([began])  # the hash takes an hour, so a later call would have another time
    later = began + 3600 * 10**9
    monkeypatch.setattr("time.time_ns", lambda: next(times, later))
    read_weights(tmp_path)
    assert not (tmp_path / "build/source-stamps.json").exists()
    assert hashed == [path]
