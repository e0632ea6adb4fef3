"""Who may approve a loss: the owners of CODEOWNERS, and the host's answer about reviews."""

from __future__ import annotations

import io
from typing import Any

import pytest

from exporter.core.errors import ExporterError
from exporter.gate.approvals import (
    CodeOwners,
    Reviewers,
    Reviews,
    read_reviews,
    select_reviewers,
)

FILE = "reports/baseline/net.json"
OWNED = CodeOwners("* @all\n/reports/baseline/ @Ann @bob # the team\n")

PATTERNS = [
    ("*", True),
    ("*.json", True),
    ("*.md", False),
    ("/*.json", False),
    ("reports/", True),
    ("/reports/", True),
    ("/baseline/", False),
    ("baseline/", True),
    ("baseline", True),
    ("base", False),
    ("reports/*", False),
    ("reports/**", True),
    ("reports/*/net.json", True),
    ("reports/baseline/*", True),
    ("**/baseline/*", True),
    ("/**/net.json", True),
    ("reports/baseline/n?t.json", True),
    ("reports/baseline/netxjson", False),
    ("reports/baseline/net.json/", False),
]


@pytest.mark.parametrize(("pattern", "matches"), PATTERNS)
def test_a_pattern_matches_as_the_host_does(pattern: str, matches: bool) -> None:
    assert list_owners(CodeOwners(f"{pattern} @ann")) == ([["@ann"]] if matches else [])


#: GitLab anchors a pattern by its first slash only, and one without a last slash is no folder.
GITLAB_PATTERNS = [
    ("*", True),
    ("baseline/", True),
    ("reports/baseline/", True),
    ("/reports/baseline/", True),
    ("baseline", False),
    ("reports/*", False),
    ("baseline/*", True),
    ("/baseline/*", False),
]


@pytest.mark.parametrize(("pattern", "matches"), GITLAB_PATTERNS)
def test_a_pattern_matches_as_gitlab_does(pattern: str, matches: bool) -> None:
    owners = CodeOwners(f"{pattern} @ann", is_of_gitlab=True)
    assert list_owners(owners) == ([["@ann"]] if matches else [])
    below = [group.names for group in owners.find(f"packages/vision/{FILE}")]
    assert below == ([("@ann",)] if matches and not pattern.startswith("/") else [])


def list_owners(owners: CodeOwners, path: str = FILE) -> list[list[str]]:
    return [[*group.names] for group in owners.find(path)]


def test_the_last_rule_counts_also_without_owners() -> None:
    assert list_owners(OWNED) == [["@ann", "@bob"]]
    assert list_owners(CodeOwners("* @ann\n/reports/\n")) == []
    assert list_owners(CodeOwners("# * @ann\n")) == []
    assert list_owners(CodeOwners(r"/a\ b/ @ann"), "a b/c") == [["@ann"]]
    assert list_owners(CodeOwners("* @ann please\n")) == [["@ann"]]


#: A file of GitLab, the persons who approve, and those whose approvals suffice.
SECTIONS = [
    ("[A] @ann @bob\n*\n[B]\n*.json @bob\n", ["bob"], ["bob"]),
    ("[A] @ann @bob\n*\n[B]\n*.json @bob\n", ["ann"], []),
    # Each section has an approval of its own.
    ("* @ann\n[B]\n*.json @bob\n", ["ann", "bob"], ["ann", "bob"]),
    ("* @ann\n[B]\n*.json @bob\n", ["bob"], []),
    # An optional section needs none.
    ("* @ann\n^[B][2]\n*.json @bob\n", ["ann"], ["ann"]),
    ("^[B]\n*.json @bob\n", ["carl"], ["carl"]),
    ("^[B]\n*.json @bob\n", [], []),
    ("^[B]\n*.json @bob\n[b]\n/src/ @bob", ["carl"], []),
    ("[B] @ann @bob\n*.json\n^[B]\n/src/ @bob", ["ann"], ["ann"]),
    # A section can need several.
    ("[B][2] @ann @bob @carl\n*.json\n", ["ann"], []),
    ("[B][2] @ann @bob @carl\n*.json\n", ["carl", "ann"], ["carl", "ann"]),
    ("[B][2] @ann @bob @carl\n*.json\n", ["carl", "dan"], []),
    ("[B][0] @ann\n*.json\n", ["dan"], []),
    ("[B][2] @ann @bob\n*.json\n[B]\n*.md @ann", ["ann"], []),
    # A pattern with `!` has no owners in its section, whatever follows.
    ("* @ann\n!*.json\n/reports/ @ann\n", ["carl"], ["carl"]),
    ("* @ann\n[B] @bob\n*\n!*.json\n", ["ann"], ["ann"]),
]


@pytest.mark.parametrize(("text", "approvals", "approvers"), SECTIONS)
def test_each_section_of_gitlab_that_is_not_optional_needs_its_approvals(
    text: str, approvals: list[str], approvers: list[str]
) -> None:
    reviewers = Reviewers(approved_by=tuple(approvals), owners=CodeOwners(text, is_of_gitlab=True))
    assert [*reviewers.find_approvers([FILE])] == approvers


def test_github_ignores_a_pattern_with_an_exclamation_mark() -> None:
    assert list_owners(CodeOwners("* @ann\n!*.json\n")) == [["@ann"]]


def approve(by: str, commit: str = "head", **fields: Any) -> Reviews:
    values = {"head": "head", "author": "eve", **fields}
    return Reviews(**values, approvals=({"by": by, "commit": commit},))  # type: ignore[arg-type]


APPROVALS: list[tuple[Reviews | None, CodeOwners | None, str]] = [
    (approve("Ann"), OWNED, "Ann"),
    (approve("bob"), OWNED, "bob"),
    (approve("carl"), OWNED, ""),
    (approve("carl"), None, "carl"),
    (approve("carl"), CodeOwners("/docs/ @ann"), "carl"),
    (approve("Eve"), None, ""),
    (approve("ann", author="ANN"), OWNED, ""),
    (approve("ann", commit="earlier"), OWNED, ""),
    (approve("ann", head="other"), OWNED, ""),
    (approve("ann", head="other", commit="other"), OWNED, ""),
    (approve("carl", author=None), None, "carl"),
    (approve(""), None, ""),
    # The members of a team are unknown.
    (approve("ann"), CodeOwners("* @acme/vision"), ""),
    (None, None, ""),
]


@pytest.mark.parametrize(("reviews", "owners", "approver"), APPROVALS)
def test_an_owner_other_than_the_author_approves_the_current_commit(
    reviews: Reviews | None, owners: CodeOwners | None, approver: str
) -> None:
    reviewers = select_reviewers(reviews, ["merge", "head"], owners)
    assert reviewers.find_approvers([FILE]) == ((approver,) if approver else ())


def test_each_file_needs_an_owner() -> None:
    owners = CodeOwners("*a.json @ann\n*b.json @bob\n")
    ann, both = (Reviewers(approved_by=each, owners=owners) for each in (("ann",), ("ann", "bob")))
    assert ann.find_approvers(["a.json"]) == ("ann",)
    assert ann.find_approvers(["a.json", "b.json"]) == ()
    assert both.find_approvers(["a.json", "b.json"]) == ("ann", "bob")


NAME = (
    "let another person approve the commit, whom CODEOWNERS of the target branch must name for "
    f"{FILE}: it has only "
)
UNKNOWN = ", whose members are unknown here"
ANYBODY = (
    "let another person with write permission approve the commit (if there is none: "
    "docs/gate.md#losses-on-purpose)"
)


@pytest.mark.parametrize(
    ("owners", "author", "text"),
    [
        (OWNED, None, "let @ann or @bob approve the commit"),
        (OWNED, "Bob", "let @ann approve the commit"),
        (CodeOwners("* @Bob"), "bob", f"{NAME}@bob, and the author cannot approve"),
        (CodeOwners("* @acme/vision"), None, f"{NAME}@acme/vision{UNKNOWN}"),
        (
            CodeOwners("* @@maintainer"),
            "eve",
            f"{NAME}@@maintainer{UNKNOWN}",
        ),
        (
            CodeOwners("* @ann @bob\n[B][2] @ann @carl @dan\n*"),
            None,
            "let @ann or @bob and 2 of @ann, @carl, @dan approve the commit",
        ),
        (None, None, ANYBODY),
    ],
)
def test_the_next_step_is_possible(
    owners: CodeOwners | None, author: str | None, text: str
) -> None:
    reviews = author and Reviews(head="head", author=author)
    assert select_reviewers(reviews or None, [], owners).describe([FILE]) == text


@pytest.mark.parametrize("text", ["", "[]", '{"head": "a"}', '{"head": "a", "author": 1}'])
def test_another_answer_is_an_error(text: str) -> None:
    with pytest.raises(ExporterError, match=r"--approvals: .*; docs/gate.md has the form"):
        read_reviews(io.StringIO(text))
