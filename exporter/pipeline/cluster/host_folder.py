"""The working folder of a host: files by digest, copies of projects and folders of jobs.

All processes of a host share the folder. Files appear in it by a rename of complete content.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from exporter.core.file_hash import hash_file
from exporter.pipeline.cluster.project_tree import ProjectTree
from exporter.pipeline.cluster.protocol import FilePart

#: Seconds after which an unused file, copy or job is removed.
_MAX_AGE = 7 * 24 * 3600.0
_EXECUTABLE, _PLAIN = 0o755, 0o644
#: Written when a copy is complete: the state of each file.
_STAMP = "copy.json"
_BYTECODE = "__pycache__"


class WrongDigest(Exception):
    """The received content has another digest than the announced one."""


@dataclass(frozen=True, slots=True)
class HostFolder:
    """The working folder."""

    path: Path

    def find_blob(self, digest: str) -> Path:
        """Return the path of the file with this digest."""
        return self.path / "blobs" / digest[:2] / digest

    def list_missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Return the digests without a file, and mark the others as used."""
        missing = []
        for digest in dict.fromkeys(digests):
            try:
                os.utime(self.find_blob(digest))
            except OSError:
                missing.append(digest)
        return tuple(missing)

    def add_part(self, part: FilePart) -> None:
        """Add a part of a file; the last one completes it.

        Raises:
            WrongDigest: if the complete file has another digest.
        """
        path = self.path / "incoming" / f"{part.digest}.{part.sender}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if part.offset else "wb") as file:
            file.seek(part.offset)
            file.write(part.content)
        if not part.is_last:
            return
        if hash_file(path) != part.digest:
            path.unlink()
            raise WrongDigest(part.digest)
        blob = self.find_blob(part.digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        path.replace(blob)

    def read_tree(self, digest: str) -> ProjectTree:
        """Return the list of a project's files, which is a file itself."""
        return ProjectTree.model_validate_json(self.find_blob(digest).read_bytes())

    def copy_project(self, digest: str, *, is_first: bool) -> Path:
        """Return the root of an unchanged copy of a project; create it if there is none.

        A job may have changed a file of an earlier copy. Then the next job receives a new copy.

        Args:
            digest: The digest of the tree, whose files exist.
            is_first: True for the first job of a run, which also refuses files that were added.
        """
        tree = self.read_tree(digest)
        parent = self.path / "projects" / digest
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / ".lock"):
            copies = sorted(int(each.name) for each in parent.iterdir() if each.name.isdigit())
            if copies:
                folder = parent / str(copies[-1])
                if _is_unchanged(folder, tree, accepts_new_files=not is_first):
                    os.utime(folder / _STAMP)
                    return folder / tree.name
            folder = parent / str(copies[-1] + 1 if copies else 1)
            self._fill_copy(folder, tree)
            return folder / tree.name

    def _fill_copy(self, folder: Path, tree: ProjectTree) -> None:
        """Write all files of a tree.

        Raises:
            WrongDigest: if the content of a file was changed in this folder.
        """
        root = folder / tree.name
        root.mkdir(parents=True)
        for name in tree.folders:
            (root / name).mkdir(parents=True, exist_ok=True)
        for file in tree.files:
            path, blob = root / file.name, self.find_blob(file.sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, path)
            if hash_file(path) != file.sha256:
                blob.unlink()
                shutil.rmtree(folder)
                raise WrongDigest(file.sha256)
            path.chmod(_EXECUTABLE if file.is_executable else _PLAIN)
        for link in tree.links:
            (root / link.name).symlink_to(link.target)
        (folder / _STAMP).write_text(json.dumps(_read_states(root, tree)), encoding="utf-8")

    def remove_unused(self) -> None:
        """Remove files and copies that no run used for some time."""
        limit = time.time() - _MAX_AGE
        with suppress(OSError):
            for path in _list_unused(self.path.glob("blobs/*/*"), limit):
                path.unlink()
            for path in _list_unused(self.path.glob("incoming/*"), limit):
                path.unlink()
            for stamp in _list_unused(self.path.glob(f"projects/*/*/{_STAMP}"), limit):
                shutil.rmtree(stamp.parent, ignore_errors=True)


def _list_unused(paths: Iterable[Path], limit: float) -> Iterator[Path]:
    for path in paths:
        if path.lstat().st_mtime < limit:
            yield path


def _is_unchanged(folder: Path, tree: ProjectTree, *, accepts_new_files: bool) -> bool:
    root = folder / tree.name
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        if stamp != _read_states(root, tree):
            return False
    except (OSError, ValueError):
        return False
    return accepts_new_files or not _has_new_files(root, tree)


def _read_states(root: Path, tree: ProjectTree) -> dict[str, list[int]]:
    """Return size, time and inode of each file."""
    states = {}
    for file in tree.files:
        state = (root / file.name).lstat()
        states[file.name] = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    return states


def _has_new_files(root: Path, tree: ProjectTree) -> bool:
    """Return True if a folder contains more than its list; folders that travel empty may do so."""
    known = {file.name for file in tree.files} | {link.name for link in tree.links}
    known |= set(tree.folders)
    filled = {parent for name in known for parent in _list_parents(name)}
    for folder, names, leaves in os.walk(root):
        names[:] = [name for name in names if name != _BYTECODE]
        paths = {name: Path(folder, name).relative_to(root).as_posix() for name in names}
        if any(path not in known for path in paths.values()):
            return True
        if any(Path(folder, name).relative_to(root).as_posix() not in known for name in leaves):
            return True
        names[:] = [name for name, path in paths.items() if path in filled]
    return False


def _list_parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def hash_content(content: bytes) -> str:
    """Return the digest of bytes."""
    return hashlib.sha256(content).hexdigest()
