"""Reviews of a branch: who may approve a loss that the branch accepts with a reason.

The host of the repository knows the reviews, so the job of the gate asks it; a file of the branch
is never read. The owners are those of CODEOWNERS at the target branch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.record import format_validation_error

#: The places of CODEOWNERS in a repository; the first one counts.
CODEOWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
#: The places on GitLab.
GITLAB_CODEOWNERS = ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")


class Approval(FrozenModel):
    """A person with write permission who approves a commit."""

    by: str
    commit: str


class Reviews(FrozenModel):
    """The answer of the host about one pull request: the file of `gate --approvals`."""

    head: str
    """The commit to merge."""
    author: str | None
    """None if the account does not exist any more."""
    approvals: Items[Approval] = ()
    """The last approval of each person, without bots and without persons who cannot write."""
    codeowners: Items[str] = CODEOWNERS
    """The places at which the host searches the owners of files."""


def read_reviews(file: IO[str]) -> Reviews:
    """Read the answer of the host.

    Raises:
        ExporterError: UNREADABLE if it has another form.
    """
    try:
        return Reviews.model_validate_json(file.read(CELL_LIMIT))
    except ValidationError as error:
        message = f"--approvals: {format_validation_error(error)}; docs/gate.md has the form"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except ValueError as error:
        message = "--approvals: is no text; docs/gate.md has the form"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewers:
    """The persons who approved the branch, and the owners of its files."""

    approved_by: tuple[str, ...] = ()
    """Without the author, and only for the commit that is compared."""
    owners: CodeOwners | None = None

    def find_approver(self, paths: Collection[str]) -> str:
        """Return who approves a change of all files, or "" if nobody may and does."""
        for login in self.approved_by:
            groups = [group for path in paths for group in self._list_groups(path)]
            if all(not each or f"@{login}".casefold() in each for each in groups):
                return login
        return ""

    def describe(self, path: str) -> str:
        """Return who may approve a change of the file."""
        owners = tuple(dict.fromkeys(each for group in self._list_groups(path) for each in group))
        persons = [each for each in owners if _is_person(each)]
        if owners and not persons:
            return (
                f"a person that CODEOWNERS names for {path} (it has only {', '.join(owners)}, and "
                "their members are unknown here)"
            )
        return " or ".join(persons) or "another person with write permission"

    def _list_groups(self, path: str) -> tuple[tuple[str, ...], ...]:
        return self.owners.find(path) if self.owners else ()


def select_reviewers(
    reviews: Reviews | None, heads: Sequence[str], owners: CodeOwners | None
) -> Reviewers:
    """Return the valid approvals; `heads` are the commits that the work tree can stand for."""
    if reviews is None or reviews.head not in heads:
        return Reviewers(owners=owners)
    author = (reviews.author or "").casefold()
    approved_by = dict.fromkeys(
        each.by
        for each in reviews.approvals
        if each.commit == reviews.head and each.by and each.by.casefold() != author
    )
    return Reviewers(approved_by=tuple(approved_by), owners=owners)


class CodeOwners:
    """The rules of a CODEOWNERS file: the last one that matches a path names its owners.

    A file of GitLab has sections, of which each one has a last rule.
    """

    def __init__(self, text: str) -> None:
        self._rules = list(_parse_rules(text))

    def find(self, path: str) -> tuple[tuple[str, ...], ...]:
        """Return the owners of a path from the top of the repository, in lower case.

        A person of each group must approve.
        """
        groups = {name: owners for name, pattern, owners in self._rules if pattern.fullmatch(path)}
        return tuple(owners for owners in groups.values() if owners)


#: The head of a section: `[Name] @owner`, `^[Name]` if it is optional, `[Name][2]` for two persons.
_SECTION = re.compile(r"\^?\[([^\]]+)\](?:\[\d+\])?(?:\s+(.*))?")


def _parse_rules(text: str) -> Iterator[tuple[str, re.Pattern[str], tuple[str, ...]]]:
    section, default = "", tuple[str, ...]()
    for line in text.splitlines():
        content = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if match := _SECTION.fullmatch(content):
            section = match[1].casefold()
            default = tuple((match[2] or "").casefold().split())
            continue
        # A space of a path has a backslash.
        words = re.findall(r"(?:\\.|\S)+", content)
        if words:
            owners = tuple(each.casefold() for each in words[1:])
            yield section, _compile_pattern(words[0]), owners or default


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern: the rules of .gitignore without `!` and `[a-z]`."""
    is_folder = pattern.endswith("/")
    is_anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    parts = re.findall(r"\*\*/|/\*\*|\*\*|\*|\?|\\.|[^*?\\/]+|/|\\", body)
    names = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(names.get(each) or re.escape(each.removeprefix("\\")) for each in parts)
    # `docs/*` has the files of the folder, and not those of its folders.
    rest = "/.*" if is_folder else "" if is_anchored and body.endswith("/*") else "(?:/.*)?"
    return re.compile(("" if is_anchored else "(?:.*/)?") + text + rest, re.DOTALL)


def _is_person(owner: str) -> bool:
    return owner.startswith("@") and "/" not in owner
