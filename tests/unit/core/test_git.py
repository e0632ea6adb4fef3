"""The commits and versions that git returns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.core.git import (
    find_git_folder,
    find_head,
    find_last_change,
    find_repository,
    list_ignored_files,
    list_versions,
)
from tests.integration.project import run_git


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://host.example/acme/pets.git", "https://host.example/acme/pets"),
        ("https://user:secret@host.example/acme/pets", "https://host.example/acme/pets"),
        ("https://token@host.example:8443/acme/pets.git/", "https://host.example/acme/pets"),
        ("git@host.example:acme/pets.git", "https://host.example/acme/pets"),
        ("ssh://git@host.example:22/acme/pets.git", "https://host.example/acme/pets"),
        ("/srv/git/pets.git", ""),
        ("file:///srv/git/pets.git", ""),
        ("../pets", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_repository_has_no_secret(
    remote: str, address: str, tmp_path: Path
) -> None:
    run_git(tmp_path, "init", "-q")
    if remote:
        run_git(tmp_path, "remote", "add", "origin", remote)
    assert find_repository(tmp_path, os.environ) == address


def test_versions_of_a_file_have_their_commits(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    run_git(tmp_path, "init", "-q")
    assert find_head(tmp_path, os.environ) is None
    for index in range(52):
        file.write_text(f"{index}\n")
        run_git(tmp_path, "add", ".")
        run_git(tmp_path, "commit", "-qm", "next")
    head, day = run_git(tmp_path, "log", "-1", "--format=%H %cs").split()
    names = ("baseline", "baseline.json")
    versions = list_versions(tmp_path, names, os.environ, 100)
    assert [files for _, files in versions] == [
        {"baseline.json": f"{index}".encode()} for index in range(52)
    ]
    assert str(versions[-1][0]) == f"{head[:12]} of {day}" == str(find_head(tmp_path, os.environ))
    assert len(list_versions(tmp_path, names, os.environ, 3)) == 3
    assert list_versions(tmp_path.parent, ("none.json",), os.environ, 3) == []
    # A file becomes a folder.
    file.unlink()
    (tmp_path / "baseline").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"baseline/{name}.json").write_text(name)
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-qm", "a folder")
    (_, last) = list_versions(tmp_path, names, os.environ, 3)[-1]
    assert last == {"baseline/a.json": b"a", "baseline/b.json": b"b"}
    other = tmp_path / "*.py"  # no pattern
    other.touch()
    (tmp_path / "net.py").touch()
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-qm", "others")
    assert (
        find_last_change([tmp_path / "baseline"], os.environ)
        == list_versions(tmp_path, names, os.environ, 1)[0][0]
    )
    assert find_last_change([tmp_path / "baseline", other], os.environ) == find_head(
        tmp_path, os.environ
    )
    (tmp_path / "net.py").write_text("changed")
    assert find_last_change([tmp_path / "baseline", other], os.environ)
    other.write_text("changed")
    assert find_last_change([tmp_path / "baseline", other], os.environ) is None


@pytest.mark.parametrize(
    "content", [b"gitdir: \xff\xfe", b"gitdir: a\0b", b"", b"gitdir:", b"x" * 100_000, None]
)
def test_a_damaged_link_of_a_worktree_is_no_repository(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is None:
        os.mkfifo(tmp_path / ".git")
    else:
        (tmp_path / ".git").write_bytes(content)
    folder = find_git_folder(tmp_path)
    assert folder is None or not folder.exists()
    find_git_folder(tmp_path / "inner")


def test_a_worktree_shares_the_folder_of_its_repository(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "main")
    run_git(tmp_path / "main", "commit", "-qm", "first", "--allow-empty")
    run_git(tmp_path / "main", "worktree", "add", "-q", "../other")
    assert find_git_folder(tmp_path / "other") == tmp_path / "main/.git"


def test_files_that_a_clone_does_not_have(tmp_path: Path) -> None:
    root = tmp_path / "repository/project"
    (root / "data").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    assert list_ignored_files(root, ["a.pt"], os.environ) == ()  # no repository
    run_git(root.parent, "init", "-q")
    (root.parent / ".gitignore").write_text("*.pt\n/project/data/\n!kept.pt\n")
    for name in ("a.pt", "kept.pt", "forced.pt", "new.bin", "data/b.bin", "-c.pt"):
        (root / name).touch()
    run_git(root, "add", "-f", "forced.pt")
    (root / "outer").symlink_to(tmp_path / "outside")
    (root / "outer.bin").symlink_to(tmp_path / "outside/d.bin")
    (root / "inner").symlink_to(root / "data")
    names = ["a.pt", "kept.pt", "forced.pt", "new.bin", "data/b.bin", "-c.pt", "missing.pt"]
    names += ["missing.bin", "outer/d.bin", "outer.bin", "inner/b.bin", "../e.pt", "new.bin/x"]
    expected = ("a.pt", "data/b.bin", "-c.pt", "missing.pt")
    expected += ("outer/d.bin", "outer.bin", "inner/b.bin", "../e.pt")
    assert list_ignored_files(root, names, os.environ) == expected
    assert list_ignored_files(root, ["kept.pt"], {}) == ()
    assert list_ignored_files(root, [], os.environ) == ()
    assert list_ignored_files(root, names, {"PATH": ""}) == ()
