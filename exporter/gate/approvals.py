"""Reviews of a branch: who may approve a loss that the branch accepts with a reason.

The host of the repository knows the reviews, so the job of the gate asks it; a file of the branch
is never read. The owners are those of CODEOWNERS at the target branch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.record import format_validation_error

Host: TypeAlias = Literal["GitHub", "GitLab"]
#: The places of CODEOWNERS in a repository; the first one counts.
CODEOWNERS: Mapping[Host, Sequence[str]] = {
    "GitHub": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "GitLab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
}


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
    host: Host = "GitHub"
    """The one whose rules CODEOWNERS follows."""


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
    author: str = ""

    def find_approvers(self, paths: Collection[str]) -> tuple[str, ...]:
        """Return who approves a change of all files; nobody if an approval is missing."""
        groups = [group for path in paths for group in self._find(path)]
        if not groups:
            return self.approved_by[:1]
        approvers: dict[str, None] = {}
        for group in groups:
            owners = [each for each in self.approved_by if f"@{each}".casefold() in group.names]
            if len(owners) < group.needed:
                return ()
            approvers |= dict.fromkeys(owners[: group.needed])
        return tuple(approvers)

    def describe(self, paths: Collection[str]) -> str:
        """Return the next step for a change of all files that nobody approved."""
        persons = []
        groups = ((each, *group) for each in paths for group in self._find(each))
        for path, names, needed in groups:
            known = [each for each in names if _is_person(each)]
            able = [each for each in known if each != f"@{self.author}".casefold()]
            if len(able) < needed:
                others = f"{', '.join(names)}, whose members are unknown here"
                reason = f"{', '.join(known)}, and the author cannot approve" if known else others
                return (
                    f"let another person approve the commit, whom CODEOWNERS of the target branch "
                    f"must name for {path}: it has only {reason}"
                )
            persons.append(f"{needed} of {', '.join(able)}" if needed > 1 else " or ".join(able))
        if persons:
            return f"let {' and '.join(dict.fromkeys(persons))} approve the commit"
        return (
            "let another person with write permission approve the commit (if there is none: "
            "docs/gate.md#losses-on-purpose)"
        )

    def _find(self, path: str) -> Sequence[OwnerGroup]:
        return self.owners.find(path) if self.owners else ()


def select_reviewers(
    reviews: Reviews | None, heads: Sequence[str], owners: CodeOwners | None
) -> Reviewers:
    """Return the valid approvals; `heads` are the commits that the work tree can stand for."""
    if reviews is None:
        return Reviewers(owners=owners)
    author = reviews.author or ""
    approved_by = dict.fromkeys(
        each.by
        for each in reviews.approvals
        if each.commit == reviews.head in heads
        and each.by
        and each.by.casefold() != author.casefold()
    )
    return Reviewers(approved_by=tuple(approved_by), owners=owners, author=author)


class OwnerGroup(NamedTuple):
    """Owners of a file of whom some must approve its change."""

    names: tuple[str, ...]
    """In lower case."""
    needed: int
    """The number of persons."""


class CodeOwners:
    """The rules of a CODEOWNERS file: the last one that matches a path names its owners.

    A file of GitLab has sections, of which each one has a last rule and approvals of its own.
    """

    def __init__(self, text: str, *, is_of_gitlab: bool = False) -> None:
        self._rules: list[_Rule] = []
        self._counts = {"": 1}
        section, default = "", tuple[str, ...]()
        for line in text.splitlines():
            content = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
            if match := _SECTION.fullmatch(content):
                section, default = match["name"].casefold(), _list_names(match["owners"].split())
                # Headings with one name are one section, which is optional if all of them are.
                count = 0 if match["optional"] else max(1, int(match["count"] or 1))
                self._counts[section] = max(count, self._counts.get(section, 0))
                continue
            # A space of a path has a backslash.
            words = re.findall(r"(?:\\.|\S)+", content)
            is_excluded = bool(words) and words[0].startswith("!")
            if words and (is_of_gitlab or not is_excluded):
                pattern = _compile_pattern(words[0].removeprefix("!"), is_of_gitlab=is_of_gitlab)
                names = None if is_excluded else _list_names(words[1:]) or default
                self._rules.append(_Rule(section, pattern, names))

    def find(self, path: str) -> tuple[OwnerGroup, ...]:
        """Return the groups of owners of a path from the top of the repository."""
        owners: dict[str, tuple[str, ...] | None] = {}
        for section, pattern, names in self._rules:
            if owners.get(section, ()) is not None and pattern.fullmatch(path):
                owners[section] = names
        return tuple(
            OwnerGroup(names, self._counts[section])
            for section, names in owners.items()
            if names and self._counts[section]
        )


class _Rule(NamedTuple):
    section: str
    pattern: re.Pattern[str]
    names: tuple[str, ...] | None
    """None if the section has no owner for the path, whatever follows: a pattern with `!`."""


#: The head of a section: `[Name] @owner`, `^[Name]` if it is optional, `[Name][2]` for two persons.
_SECTION = re.compile(
    r"(?P<optional>\^?)\[(?P<name>[^\]]+)\](?:\[(?P<count>\d+)\])?(?P<owners>(?:\s+.*)?)"
)


def _list_names(words: Collection[str]) -> tuple[str, ...]:
    """Return the owners in lower case; hosts ignore other words."""
    return tuple(each.casefold() for each in words if "@" in each)


def _compile_pattern(pattern: str, *, is_of_gitlab: bool) -> re.Pattern[str]:
    """Return the expression of a pattern: the rules of .gitignore without `!` and `[a-z]`.

    On GitLab, only a slash at the start anchors it, and only one at the end makes it a folder.
    """
    is_folder = pattern.endswith("/")
    is_anchored = pattern.startswith("/") if is_of_gitlab else "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    parts = re.findall(r"\*\*/|/\*\*|\*\*|\*|\?|\\.|[^*?\\/]+|/|\\", body)
    names = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(names.get(each) or re.escape(each.removeprefix("\\")) for each in parts)
    # `docs/*` has the files of the folder, and not those of its folders.
    is_file = is_of_gitlab or (is_anchored and body.endswith("/*"))
    rest = "/.*" if is_folder else "" if is_file else "(?:/.*)?"
    return re.compile(("" if is_anchored else "(?:.*/)?") + text + rest, re.DOTALL)


def _is_person(owner: str) -> bool:
    return re.fullmatch("@[^@/]+", owner) is not None
