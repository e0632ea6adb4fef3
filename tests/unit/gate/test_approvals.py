"""Who may approve a loss: the owners of CODEOWNERS, and the host's answer about reviews."""

from __future__ import annotations

import io
from typing import Any

import pytest

from exporter.core.errors import ExporterError
from exporter.gate.approvals import (
    CodeOwners,
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
    assert CodeOwners(f"{pattern} @ann").find(FILE) == ((("@ann",),) if matches else ())


def test_the_last_rule_counts_also_without_owners() -> None:
    assert OWNED.find(FILE) == (("@ann", "@bob"),)
    assert CodeOwners("* @ann\n/reports/\n").find(FILE) == ()
    assert CodeOwners("# * @ann\n").find(FILE) == ()
    assert CodeOwners(r"/a\ b/ @ann").find("a b/c") == (("@ann",),)


def test_each_section_of_gitlab_has_owners() -> None:
    text = "* @all\n[Models][2] @ann\n/reports/\n^[Docs]\n*.md @bob\n[Safety]\n*.json @bob @ann\n"
    owners = CodeOwners(text)
    assert owners.find(FILE) == (("@all",), ("@ann",), ("@bob", "@ann"))
    assert CodeOwners("[Models] @ann\n/reports/\n").find(FILE) == (("@ann",),)
    sections = CodeOwners("[A] @ann @bob\n*\n[B]\n*.json @bob\n")
    for name, approver in {"bob": "bob", "ann": ""}.items():
        assert select_reviewers(approve(name), ["head"], sections).find_approver([FILE]) == approver


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
    assert reviewers.find_approver([FILE]) == approver


def test_one_person_must_own_all_files() -> None:
    owners = CodeOwners("*a.json @ann\n*b.json @bob\n")
    reviewers = select_reviewers(approve("ann"), ["head"], owners)
    assert [reviewers.find_approver(each) for each in (["a.json"], ["a.json", "b.json"])] == [
        "ann",
        "",
    ]


@pytest.mark.parametrize(
    ("owners", "text"),
    [
        (OWNED, "@ann or @bob"),
        (None, "another person with write permission"),
        (CodeOwners("* @acme/vision"), "it has only @acme/vision, and their members are unknown"),
    ],
)
def test_the_next_step_names_the_owners(owners: CodeOwners | None, text: str) -> None:
    assert text in select_reviewers(None, [], owners).describe(FILE)


@pytest.mark.parametrize("text", ["", "[]", '{"head": "a"}', '{"head": "a", "author": 1}'])
def test_another_answer_is_an_error(text: str) -> None:
    with pytest.raises(ExporterError, match=r"--approvals: .*; docs/gate.md has the form"):
        read_reviews(io.StringIO(text))
