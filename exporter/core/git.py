"""Read the project's files at a revision of git.

Input: the project's root and a revision. Output: a `Checkout`, removed when it is closed.

The files are those of the last commit that the revision and `HEAD` share, because later commits of
others do not belong to this branch. git's objects are read; the work tree and the index are
unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


@contextmanager
def check_out(root: Path, revision: str, environment: Mapping[str, str]) -> Iterator[Checkout]:
    """Yield the project at the commit that `revision` and `HEAD` share.

    Args:
        root: The project's folder, in a repository.
        revision: A branch, a tag or a commit.
        environment: The environment variables for git.

    Raises:
        ExporterError: MANIFEST if the revision does not exist. ENVIRONMENT if git is missing, if
            the folder is not in a repository, or if the clone is too shallow.
    """
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise ExporterError(ExitCode.MANIFEST, f"--against: '{revision}' is not a revision")
    git = _Git(root, environment)
    top, prefix = (git.run("rev-parse", flag) for flag in ("--show-toplevel", "--show-prefix"))
    commit = git.try_run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit is None:
        message = f"--against: git has no commit '{revision}'; fetch it first"
        raise ExporterError(ExitCode.MANIFEST, message)
    base = git.try_run("merge-base", commit, "HEAD")
    if base is None:
        message = (
            f"--against: '{revision}' and HEAD have no common commit in this clone; fetch the full "
            "history (`fetch-depth: 0` of actions/checkout)"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    tree = git.try_run("rev-parse", "--verify", "--quiet", f"{base}:{prefix}".rstrip("/"))
    name = f"{revision} ({base[:12]})"
    if tree is None:
        raise ExporterError(ExitCode.MANIFEST, f"--against: {name} has no folder '{prefix}'")
    with tempfile.TemporaryDirectory(prefix="exporter-revision-") as folder:
        # A separate index keeps the work tree and its index unchanged.
        checkout_git = _Git(Path(top), {**environment, "GIT_INDEX_FILE": f"{folder}/index"})
        checkout_git.run("read-tree", tree)
        checkout_git.run("checkout-index", "--all", f"--prefix={folder}/files/")
        _check_out_submodules(git, checkout_git, Path(top), Path(folder))
        files = Path(folder, "files")
        files.mkdir(exist_ok=True)  # git creates no folder for an empty tree
        day = git.run("show", "--no-patch", "--format=%cs", base)
        yield Checkout(name=name, commit=Commit(id=base[:12], day=day), root=files)


def _check_out_submodules(git: _Git, index: _Git, top: Path, folder: Path) -> None:
    """Add the files of submodules that are fetched, each at the commit of the tree."""
    prefix = git.run("rev-parse", "--show-prefix")
    for line in index.run("ls-files", "--stage").splitlines():
        mode, commit, rest = line.split(" ", 2)
        if mode != _SUBMODULE:
            continue
        name = rest.partition("\t")[2]
        module = _Git(top / prefix / name, {**index.environment, "GIT_INDEX_FILE": f"{folder}/m"})
        # A folder without a repository of its own would read the outer one.
        if (module.folder / ".git").exists() and module.try_run("read-tree", commit) is not None:
            module.run("checkout-index", "--all", f"--prefix={folder}/files/{name}/")


def find_last_change(
    file: Path, environment: Mapping[str, str], commit: str | None = None
) -> Commit | None:
    """Return the last commit up to `commit` that changed a file.

    Args:
        file: A file in a repository.
        environment: The environment variables for git.
        commit: A commit's hash. None for `HEAD`; the file must then be unchanged since.

    Returns:
        None if git cannot find it: the folder is not in a repository, the file has uncommitted
        changes, or the history of a shallow clone ends before that commit.
    """
    git = _Git(file.parent, environment)
    try:
        if commit is None and git.try_run("status", "--porcelain", "--", file.name) != "":
            return None
        line = git.try_run("log", "-1", "--format=%H %cs %P", commit or "HEAD", "--", file.name)
        id, day, *parents = (line or "").split() or ("", "")
        is_cut = not parents and git.try_run("rev-parse", "--is-shallow-repository") != "false"
    except (ExporterError, OSError):
        return None
    return None if is_cut or not id else Commit(id=id[:12], day=day)


@dataclass(frozen=True, slots=True)
class _Git:
    """The git command in a folder."""

    folder: Path
    environment: Mapping[str, str]

    def try_run(self, *arguments: str) -> str | None:
        """Return git's output without surrounding space, or None if the command fails."""
        process = self._start(*arguments)
        return process.stdout.strip() if process.returncode == 0 else None

    def run(self, *arguments: str) -> str:
        """Return git's output without surrounding space; raise ENVIRONMENT if it fails."""
        process = self._start(*arguments)
        if process.returncode:
            output = " ".join(process.stderr.split())
            raise ExporterError(ExitCode.ENVIRONMENT, f"--against: git {arguments[0]}: {output}")
        return process.stdout.strip()

    def _start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which("git", path=self.environment.get("PATH"))
        if program is None:
            message = "--against: git is not installed; install it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        try:
            return subprocess.run(
                [program, *arguments],
                cwd=self.folder,
                # No manifest is a large file, so Git LFS need not download any.
                env={**self.environment, "GIT_LFS_SKIP_SMUDGE": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"--against: git {arguments[0]} took longer than {_TIMEOUT} s"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
