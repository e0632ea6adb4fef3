"""The project as it was at a revision of git, in a folder of its own.

In: the project's root and the name of a revision. Out: a `Checkout`, which goes when it is closed.

The files are those of the last commit that the revision and `HEAD` share: what others have changed
since is not this branch's doing. They are read from git's objects; neither the work tree nor the
index is touched.
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

_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit and its day."""

    id: str
    """Twelve digits of its hash."""
    day: str
    """ISO 8601, of the commit and not of what it was made from."""

    def __str__(self) -> str:
        return f"{self.id} of {self.day}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The files of a commit."""

    name: str
    """As messages call it: the revision and the commit, `origin/main (1a2b3c4d5e6f)`."""
    commit: Commit
    root: Path
    """The project's folder in it."""


@contextmanager
def check_out(root: Path, revision: str, environment: Mapping[str, str]) -> Iterator[Checkout]:
    """The project at the commit that `revision` and `HEAD` share.

    Args:
        root: The project's folder, in a repository.
        revision: A branch, a tag or a commit.
        environment: Of the git that is started.

    Raises:
        ExporterError: MANIFEST, where there is no such revision; ENVIRONMENT, where git is missing,
            this is no repository, or its history does not reach far enough back.
    """
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise ExporterError(ExitCode.MANIFEST, f"--against: '{revision}' is no revision")
    git = _Git(root, environment)
    top, prefix = (git.told("rev-parse", flag) for flag in ("--show-toplevel", "--show-prefix"))
    commit = git.asked("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit is None:
        message = f"--against: git knows no commit '{revision}'; fetch it first"
        raise ExporterError(ExitCode.MANIFEST, message)
    base = git.asked("merge-base", commit, "HEAD")
    if base is None:
        message = (
            f"--against: no common commit of '{revision}' and HEAD is known here: fetch the whole "
            "history (`fetch-depth: 0` of actions/checkout)"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    tree = git.asked("rev-parse", "--verify", "--quiet", f"{base}:{prefix}".rstrip("/"))
    name = f"{revision} ({base[:12]})"
    if tree is None:
        raise ExporterError(ExitCode.MANIFEST, f"--against: {name} has no folder '{prefix}'")
    with tempfile.TemporaryDirectory(prefix="exporter-revision-") as place:
        # An index of its own, and git's objects: nothing of the work tree is touched.
        own = _Git(Path(top), {**environment, "GIT_INDEX_FILE": f"{place}/index"})
        own.told("read-tree", tree)
        own.told("checkout-index", "--all", f"--prefix={place}/files/")
        files = Path(place, "files")
        files.mkdir(exist_ok=True)  # an empty tree leaves none
        day = git.told("show", "--no-patch", "--format=%cs", base)
        yield Checkout(name=name, commit=Commit(id=base[:12], day=day), root=files)


def find_last_change(
    file: Path, environment: Mapping[str, str], commit: str | None = None
) -> Commit | None:
    """The last commit, of those up to `commit`, that changed a file.

    Args:
        file: In a repository.
        environment: Of the git that is started.
        commit: Its hash; None: `HEAD`, and the file has to be as it is there.

    Returns:
        None where git does not know: without a repository, of a file that is not committed as it
        stands, and where the history ends before that commit (a shallow clone).
    """
    git = _Git(file.parent, environment)
    try:
        if commit is None and git.asked("status", "--porcelain", "--", file.name) != "":
            return None
        form = "--format=%H %cs %P"
        line = git.asked("log", "-1", form, commit or "HEAD", "--", file.name) or ""
        id, day, *parents = line.split() or ("", "")
        is_cut = not parents and git.asked("rev-parse", "--is-shallow-repository") != "false"
    except (ExporterError, OSError):
        return None
    return None if is_cut or not id else Commit(id=id[:12], day=day)


@dataclass(frozen=True, slots=True)
class _Git:
    folder: Path
    environment: Mapping[str, str]

    def asked(self, *arguments: str) -> str | None:
        """What git answers, in one line; None where it has no answer."""
        ran = self._run(*arguments)
        return ran.stdout.strip() if ran.returncode == 0 else None

    def told(self, *arguments: str) -> str:
        """The same, of what git has to be able to do."""
        ran = self._run(*arguments)
        if ran.returncode:
            said = " ".join(ran.stderr.split())
            raise ExporterError(ExitCode.ENVIRONMENT, f"--against: git {arguments[0]}: {said}")
        return ran.stdout.strip()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which("git", path=self.environment.get("PATH"))
        if program is None:
            message = "git is not installed, and --against needs it"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        try:
            return subprocess.run(
                [program, *arguments],
                cwd=self.folder,
                # Big files that git keeps elsewhere stay there: no manifest is one.
                env={**self.environment, "GIT_LFS_SKIP_SMUDGE": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"git {arguments[0]}: took longer than {_SECONDS} s"
            raise ExporterError(ExitCode.ENVIRONMENT, message) from error
