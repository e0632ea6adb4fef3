"""Run git: commits, the last change of files, and differences from a commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import read_regular_file

#: `https://user:password@host/path`, `ssh://git@host:22/path` and `git@host:path`.
_REMOTE = re.compile(
    r"(?:https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[\w.-]+)(?::\d+)?/(?P<path>[\w./~+-]+)"
    r"|(?:[\w.-]+@)(?P<scp_host>[\w.-]+):(?P<scp_path>[\w./~+-]+)"
)
#: Seconds for one git command.
_TIMEOUT = 120
#: Bytes of a file with a path.
_MAX_PATH = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit and its day."""

    id: str
    """Twelve digits of its hash."""
    day: str
    """The committer's date in ISO 8601."""

    def __str__(self) -> str:
        return f"{self.id} of {self.day}"


def find_git_folder(root: Path) -> Path | None:
    """Return the folder that all worktrees of a repository share, or None outside of one."""
    for folder in (root.absolute(), *root.absolute().parents):
        git = folder / ".git"
        if git.is_dir():
            return git
        if git.is_file():  # a worktree, or a submodule
            name = _read_path(git).removeprefix("gitdir:").strip()
            if not name:
                return None
            worktree = folder / name
            common = _read_path(worktree / "commondir")
            return (worktree / common if common else worktree).resolve()
    return None


def _read_path(file: Path) -> str:
    """Return the path in a file of git, or "" if it has none."""
    try:
        text = os.fsdecode(read_regular_file(file, _MAX_PATH)).strip()
        return "" if "\0" in text else text
    except OSError:
        return ""


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


def find_repository(root: Path, environment: Mapping[str, str]) -> str:
    """Return the address of the repository `origin` for a browser; "" if it has none.

    It has no user and no password. A folder of this machine is no address.
    """
    try:
        url = Git(root, environment).try_run("remote", "get-url", "origin") or ""
    except (ExporterError, OSError):
        return ""
    match = _REMOTE.fullmatch(url.strip())
    if not match:
        return ""
    host, path = match["host"] or match["scp_host"], match["path"] or match["scp_path"]
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"


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


def list_tracked_files(folder: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of a folder in git's index, relative to it; none outside of a repository."""
    try:
        names = Git(folder, environment).try_run("ls-files", "-z", "--", ".")
    except (ExporterError, OSError):
        return ()
    return tuple(filter(None, (names or "").split("\0")))


def list_ignored_files(
    root: Path, names: Collection[str], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Return those of the files that a clone does not have, as git ignores them.

    A link out of the repository is one, too. The names are relative to `root`, and a file need not
    exist. There are none outside of a repository.
    """
    git = Git(root, environment)
    try:
        top = git.try_run("rev-parse", "--show-toplevel")
        if not top or not names:
            return ()
        places: dict[str, set[str]] = {}
        for name in names:
            path = root / name
            # git refuses a path behind a link.
            link = f"{os.path.realpath(path.parent)}/{path.name}"
            places[name] = {link, os.path.realpath(path)}
        paths = sorted(set().union(*places.values()))
        inner = [path for path in paths if Path(path).is_relative_to(os.path.realpath(top))]
        lacking = {*paths} - {*inner} | {*_select_ignored(git, inner)}
    except (ExporterError, OSError):
        return ()
    return tuple(name for name in names if places[name] & lacking)


def _select_ignored(git: Git, paths: list[str]) -> list[str]:
    process = git.start("check-ignore", "-z", "--stdin", input="\0".join(paths))
    if process.returncode > 1 and len(paths) > 1:  # git refuses all, if one is in a submodule
        return [each for path in paths for each in _select_ignored(git, [path])]
    return [each for each in process.stdout.split("\0") if each]


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
        process = self.start(*arguments)
        return process.stdout.strip() if process.returncode == 0 else None

    def run(self, *arguments: str, input: str = "") -> str:
        """Return git's output without surrounding space; raise ENVIRONMENT if it fails."""
        process = self.start(*arguments, input=input)
        if process.returncode:
            output = " ".join(process.stderr.encode(errors="replace").decode().split())
            raise ExporterError(
                ExitCode.ENVIRONMENT, f"{self.option}: git {arguments[0]}: {output}"
            )
        return process.stdout.strip()

    def start(self, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
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


def list_versions(
    folder: Path, names: Sequence[str], environment: Mapping[str, str], limit: int
) -> list[tuple[Commit, dict[str, bytes]]]:
    """Return the last versions of files and folders with their commits, the oldest first.

    Each version has the contents by their paths from `folder`. There are none if git cannot read
    the history. A shallow clone has only its own commits.
    """
    git = Git(folder, environment)
    versions, contents = [], dict[str, bytes]()
    try:
        arguments = ("log", f"--max-count={limit}", "--format=%H %cs", "--", *names)
        for line in (git.try_run(*arguments) or "").splitlines():
            id, day = line.split()
            listing = git.try_run("ls-tree", "-r", "-z", id, "--", *names) or ""
            files = dict(entry.split("\t")[::-1] for entry in listing.split("\0") if entry)
            for blob in {*files.values()} - contents.keys():
                contents[blob] = (git.try_run("cat-file", *blob.split()[1:]) or "").encode()
            if files:
                version = {name: contents[blob] for name, blob in files.items()}
                versions.append((Commit(id=id[:12], day=day), version))
    except (ExporterError, OSError):
        return []
    return versions[::-1]
