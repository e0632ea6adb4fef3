"""The project's files at a revision of git, for `--against` and `--changed`.

The files are those of the last commit that the revision and `HEAD` share, because later commits of
others do not belong to this branch. git's objects are read; the work tree and the index are
unchanged.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.git import Commit, Git, find_git_folder

#: The mode of a submodule in a tree.
_SUBMODULE = "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The files of a commit."""

    name: str
    """The revision and the commit for messages: `origin/main (1a2b3c4d5e6f)`."""
    commit: Commit
    root: Path
    """The project's folder in it."""
    omitted: tuple[str, ...] = ()
    """Links out of the repository: their content at the commit is unknown."""


@contextmanager
def check_out(
    root: Path, revision: str, environment: Mapping[str, str], option: str = "--against"
) -> Iterator[Checkout]:
    """Yield the project at the commit that `revision` and `HEAD` share.

    `option` is the one that names the revision, for messages.

    Raises:
        ExporterError: MANIFEST if the revision does not exist, or if the project moved since then.
            ENVIRONMENT if git is missing, if the folder is not in a repository, or if the clone is
            too shallow.
    """
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise ExporterError(ExitCode.MANIFEST, f"{option}: '{revision}' is not a revision")
    git = Git(root, environment, option)
    if find_git_folder(root) is None and git.try_run("rev-parse", "--git-dir") is None:
        message = f"{option}: the folder is not in a git repository; run the command in one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    top, prefix = (git.run("rev-parse", flag) for flag in ("--show-toplevel", "--show-prefix"))
    commit = git.try_run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit is None:
        message = f"{option}: git has no commit '{revision}'; fetch it first"
        raise ExporterError(ExitCode.MANIFEST, message)
    base = git.try_run("merge-base", commit, "HEAD")
    if base is None:
        message = (
            f"{option}: '{revision}' and HEAD have no common commit in this clone; fetch the full "
            "history (`fetch-depth: 0` of actions/checkout)"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    name = f"{revision} ({base[:12]})"
    is_new = git.try_run("rev-parse", "--verify", "--quiet", f"{base}:{prefix}".rstrip("/")) is None
    if is_new and (moved := _find_former_file(git, base, prefix)):
        message = (
            f"{option}: {name} has no folder '{prefix}', and {moved} is in it now: the promises of "
            "a project that moved cannot be compared; a maintainer moves it on the target branch"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    with tempfile.TemporaryDirectory(prefix="exporter-revision-") as folder:
        files = Path(folder).resolve() / "files"
        project = files / prefix
        project.mkdir(parents=True)  # git creates no folder for an empty tree, or for a new project
        _write_files(Git(Path(top), environment, option), base, Path(folder))
        day = git.run("show", "--no-patch", "--format=%cs", base)
        yield Checkout(
            name=name,
            commit=Commit(id=base[:12], day=day),
            root=project,
            omitted=_remove_outer_links(files, project),
        )


def _find_former_file(git: Git, commit: str, prefix: str) -> str:
    """Return a file of a baseline at the commit that is below `prefix` now, or ""."""
    changes = git.run("diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", commit)
    fields = changes.rstrip("\0").split("\0")
    renames = zip(fields[1::3], fields[2::3], strict=False)
    moved = (old for old, new in renames if new.startswith(prefix))
    return next((each for each in moved if PurePosixPath(each).match("baseline/*.json")), "")


def _write_files(git: Git, commit: str, folder: Path) -> None:
    """Write the files of a commit and of its fetched submodules into `folder/files`.

    A separate index keeps the work tree and its index unchanged.
    """
    index = git.select_index(folder / "index")
    index.run("read-tree", "--no-sparse-checkout", commit)
    index.run("checkout-index", "--all", f"--prefix={folder}/files/")
    for line in index.run("ls-files", "--stage", "-z").split("\0"):
        if line.startswith(_SUBMODULE):
            fields, _, name = line.partition("\t")
            module = Git(git.folder / name, git.environment).select_index(folder / "submodule")
            # A folder without a repository of its own would read the outer one.
            if not (module.folder / ".git").exists():
                continue
            if module.try_run("read-tree", "--no-sparse-checkout", fields.split()[1]) is not None:
                module.run("checkout-index", "--all", f"--prefix={folder}/files/{name}/")


def _remove_outer_links(files: Path, project: Path) -> tuple[str, ...]:
    """Remove the links that lead out of the repository, because git has no content for them.

    Otherwise an absolute link would lead to the current file, which is not that of the revision.
    Returns those of the project, relative to it.
    """
    removed = []
    for folder, folders, names in os.walk(files):
        for path in (Path(folder, name) for name in (*folders, *names)):
            if path.is_symlink() and not _is_inside(path, files):
                path.unlink()
                if path.is_relative_to(project):
                    removed.append(os.path.relpath(path, project))
    return tuple(sorted(removed))


def _is_inside(link: Path, folder: Path) -> bool:
    """Return whether a link leads to an existing file or folder in a folder."""
    try:
        return link.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # a circular link is a RuntimeError before Python 3.13
        return False
