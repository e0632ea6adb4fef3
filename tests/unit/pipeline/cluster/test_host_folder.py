"""The working folder of a host."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from exporter.pipeline.cluster.host_folder import HostFolder, WrongDigest, hash_content
from exporter.pipeline.cluster.project_tree import list_project
from exporter.pipeline.cluster.protocol import FilePart


def send(folder: HostFolder, content: bytes, digest: str = "") -> str:
    digest = digest or hash_content(content)
    middle = len(content) // 2
    for offset, part in ((0, content[:middle]), (middle, content[middle:])):
        is_last = bool(offset) or not middle
        folder.add_part(
            FilePart(digest=digest, sender="run", offset=offset, content=part, is_last=is_last)
        )
    return digest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "manifests/net.py").write_text("code")
    (root / "weights.bin").write_bytes(b"weights")
    (root / "weights.bin").chmod(0o755)
    (root / "link.bin").symlink_to("weights.bin")
    return root


def send_project(folder: HostFolder, root: Path) -> str:
    tree = list_project(root)
    for file in tree.files:
        send(folder, (root / file.name).read_bytes())
    return send(folder, tree.to_json().encode())


def test_a_file_exists_when_its_last_part_has_the_digest(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path)
    digest = hash_content(b"content")
    assert folder.list_missing([digest, digest]) == (digest,)
    send(folder, b"content")
    assert folder.list_missing([digest]) == ()
    assert folder.find_blob(digest).read_bytes() == b"content"


def test_a_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path)
    digest = hash_content(b"content")
    with pytest.raises(WrongDigest):
        send(folder, b"changed", digest)
    assert folder.list_missing([digest]) == (digest,)


def test_a_copy_has_all_files_and_is_used_again(tmp_path: Path, project: Path) -> None:
    folder = HostFolder(tmp_path / "host")
    digest = send_project(folder, project)
    copy = folder.copy_project(digest, is_first=True)
    assert copy.name == "project"
    assert list_project(copy) == list_project(project)
    assert folder.copy_project(digest, is_first=True) == copy


@pytest.mark.parametrize("name", ["manifests/net.py", "link.bin"])
def test_a_copy_that_a_job_changed_is_replaced(tmp_path: Path, project: Path, name: str) -> None:
    folder = HostFolder(tmp_path / "host")
    digest = send_project(folder, project)
    copy = folder.copy_project(digest, is_first=True)
    (copy / name).write_text("changed")  # of the same size through the link
    fresh = folder.copy_project(digest, is_first=False)
    assert fresh != copy
    assert list_project(fresh) == list_project(project)


def test_a_new_file_ends_a_copy_at_the_next_run(tmp_path: Path, project: Path) -> None:
    folder = HostFolder(tmp_path / "host")
    digest = send_project(folder, project)
    copy = folder.copy_project(digest, is_first=True)
    (copy / "manifests/net.json").write_text("{}")
    assert folder.copy_project(digest, is_first=False) == copy
    fresh = folder.copy_project(digest, is_first=True)
    assert not (fresh / "manifests/net.json").exists()


def test_a_changed_file_of_the_folder_never_reaches_a_copy(tmp_path: Path, project: Path) -> None:
    folder = HostFolder(tmp_path / "host")
    digest = send_project(folder, project)
    blob = folder.find_blob(hash_content(b"weights"))
    blob.write_bytes(b"WEIGHTS")
    with pytest.raises(WrongDigest):
        folder.copy_project(digest, is_first=True)
    assert folder.list_missing([blob.name]) == (blob.name,)
    send(folder, b"weights")
    assert (folder.copy_project(digest, is_first=True) / "weights.bin").read_bytes() == b"weights"


def test_unused_files_and_copies_are_removed(tmp_path: Path, project: Path) -> None:
    folder = HostFolder(tmp_path / "host")
    digest = send_project(folder, project)
    copy = folder.copy_project(digest, is_first=True)
    folder.remove_unused()
    assert copy.exists()
    old = time.time() - 8 * 24 * 3600
    for path in (*folder.path.glob("blobs/*/*"), copy.parent / "copy.json"):
        os.utime(path, (old, old))
    folder.remove_unused()
    assert not copy.exists()
    assert folder.list_missing([digest]) == (digest,)
