"""Read the project's files at a revision of git.

The files are those of the last commit that the revision and `HEAD` share, because later commits of
others do not belong to this branch. git's objects are read; the work tree and the index are
unchanged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError

#: The mode of a submodule in a tree.
_SUBMODULE = "160000"
#: Seconds for one git command.
_TIMEOUT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit and its day."""

    id: str
    """Twelve digits of its hash."""
    day: str
    """The committer's date in ISO 8601."""

    def __str__(self) -> str:
        return f"{self.id} of {self.day}"


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


def find_git_folder(root: Path) -> Path | None:
    """Return the folder that all worktrees of a repository share, or None outside of one."""
    for folder in (root.absolute(), *root.absolute().parents):
        git = folder / ".git"
        if git.is_dir():
            return git
        if git.is_file():  # a worktree, or a submodule
            worktree = folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            common = worktree / "commondir"
            return (
                worktree / common.read_text("utf-8").strip() if common.is_file() else worktree
            ).resolve()
    return None


@contextmanager
def check_out(
    root: Path, revision: str, environment: Mapping[str, str], option: str = "--against"
) -> Iterator[Checkout]:
    """Yield the project at the commit that `revision` and `HEAD` share.

    `option` is the one that names the revision, for messages.

    Raises:
        ExporterError: MANIFEST if the revision does not exist. ENVIRONMENT if git is missing, if
            the folder is not in a repository, or if the clone is too shallow.
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
    if git.try_run("rev-parse", "--verify", "--quiet", f"{base}:{prefix}".rstrip("/")) is None:
        raise ExporterError(ExitCode.MANIFEST, f"{option}: {name} has no folder '{prefix}'")
    with tempfile.TemporaryDirectory(prefix="exporter-revision-") as folder:
        files = Path(folder).resolve() / "files"
        project = files / prefix
        project.mkdir(parents=True)  # git creates no folder for an empty tree
        _write_files(Git(Path(top), environment, option), base, Path(folder))
        day = git.run("show", "--no-patch", "--format=%cs", base)
        yield Checkout(
            name=name,
            commit=Commit(id=base[:12], day=day),
            root=project,
            omitted=_remove_outer_links(files, project),
        )


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
                removed += [os.path.relpath(path, project)] if path.is_relative_to(project) else []
    return tuple(sorted(removed))


def _is_inside(link: Path, folder: Path) -> bool:
    """Return whether a link leads to an existing file or folder in a folder."""
    try:
        return link.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # a circular link is a RuntimeError before Python 3.13
        return False


def find_last_change(
    paths: Sequence[Path], environment: Mapping[str, str], commit: str | None = None
) -> Commit | None:
    """Return the last commit up to `commit` that changed one of the files or folders.

    Without a commit it is `HEAD`, and the paths must be unchanged since. The result is None if git
    cannot find it: the folder is not in a repository, a path has uncommitted changes, or the
    history of a shallow clone ends before that commit.
    """
    git = Git(paths[0].parent, environment)
    names = [f":(literal){path.absolute()}" for path in paths]
    try:
        if commit is None and git.try_run("status", "--porcelain", "--", *names) != "":
            return None
        line = git.try_run("log", "-1", "--format=%H %cs %P", commit or "HEAD", "--", *names)
        id, day, *parents = (line or "").split() or ("", "")
        is_cut = not parents and git.try_run("rev-parse", "--is-shallow-repository") != "false"
    except (ExporterError, OSError):
        return None
    return None if is_cut or not id else Commit(id=id[:12], day=day)


def find_head(root: Path, environment: Mapping[str, str]) -> Commit | None:
    """Return the current commit; None if the folder is not in a repository with a commit."""
    try:
        line = Git(root, environment).try_run("log", "-1", "--format=%H %cs")
    except (ExporterError, OSError):
        return None
    id, day = (line or " ").split(" ")
    return Commit(id=id[:12], day=day) if id else None


def diff_files(
    root: Path, commit: str, files: Collection[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the differences between files of a commit and of the work tree.

    They are unified differences by path from the root, sorted, without unchanged files. There are
    none if git cannot compare.
    """
    git = Git(root, environment)
    # Another program or a filter of the user would change the format.
    compare = ("diff", "--relative", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    try:
        names = git.try_run(*compare, "--name-only", "-z", commit, "--")
        changed = sorted({*(names or "").split("\0")} & {*files})
        texts = {
            name: git.try_run(*compare, "--unified=2", commit, "--", f":(literal){name}")
            for name in changed
        }
    except (ExporterError, OSError):
        return {}
    return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True, slots=True)
class Git:
    """The git command in a folder."""

    folder: Path
    environment: Mapping[str, str]
    option: str = "git"

    def select_index(self, index: Path) -> Git:
        return replace(self, environment={**self.environment, "GIT_INDEX_FILE": str(index)})

    def try_run(self, *arguments: str) -> str | None:
        """Return git's output without surrounding space, or None if the command fails."""
        process = self._start(*arguments)
        return process.stdout.strip() if process.returncode == 0 else None

    def run(self, *arguments: str, input: str = "") -> str:
        """Return git's output without surrounding space; raise ENVIRONMENT if it fails."""
        process = self._start(*arguments, input=input)
        if process.returncode:
            output = " ".join(process.stderr.encode(errors="replace").decode().split())
            raise ExporterError(
                ExitCode.ENVIRONMENT, f"{self.option}: git {arguments[0]}: {output}"
            )
        return process.stdout.strip()

    def _start(self, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        program = shutil.which("git", path=self.environment.get("PATH"))
        if program is None:
            message = f"{self.option}: git is not installed; install it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        try:
            return subprocess.run(
                [program, *arguments],
                cwd=self.folder,
                # No manifest is a large file, so Git LFS need not download any.
                env={**self.environment, "GIT_LFS_SKIP_SMUDGE": "1"},
                input=input,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",  # names of files may have any bytes
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{self.option}: git {arguments[0]} took longer than {_TIMEOUT} s"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
