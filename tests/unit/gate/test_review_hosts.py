"""The answers of GitHub and GitLab about reviews, from a server on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from exporter.cli.commands import gate as gate_command
from exporter.core.errors import ExitCode, ExporterError
from exporter.gate.approvals import CodeOwners, Reviews, select_reviewers
from exporter.gate.review_hosts import fetch_reviews

FILE = "reports/baseline/net.json"
OWNERS = CodeOwners("/reports/baseline/ @Ann\n")
MERGE_REQUEST = "/projects/7/merge_requests/3"


def approve(name: str, at: str = "2026-01-02T10:00:00.000Z", id: int = 5) -> dict[str, object]:
    return {"user": {"id": id, "username": name, "state": "active"}, "approved_at": at}


def answer_gitlab(*approvals: object, **changes: object) -> dict[str, object]:
    """Return the answers by path; a number is a status, and a text an address to go to."""
    answers: dict[str, object] = {
        MERGE_REQUEST: {"sha": "head", "author": {"username": "eve"}},
        f"{MERGE_REQUEST}/versions": [
            {"head_commit_sha": "head", "created_at": "2026-01-02T09:00:00.000Z"},
            {"head_commit_sha": "old", "created_at": "2026-01-01T09:00:00.000Z"},
        ],
        f"{MERGE_REQUEST}/approvals": {"approved_by": list(approvals)},
        "/projects/7/members/all/5": {"state": "active", "access_level": 30},
        "/users/5": {"bot": False},
    }
    return answers | changes


@contextmanager
def serve(answers: dict[str, Any], token: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, 404)
            if token not in (self.headers["PRIVATE-TOKEN"], self.headers["Authorization"]):
                answer = 401
            is_status, is_address = isinstance(answer, int), isinstance(answer, str)
            self.send_response(answer if is_status else 302 if is_address else 200)
            if is_address:
                self.send_header("Location", answer)
            self.end_headers()
            self.wfile.write(b"" if is_status or is_address else json.dumps(answer).encode())

        do_POST = do_GET  # noqa: N815 - the name that the server calls

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def find_gitlab_approver(answers: dict[str, object], token: str = "secret") -> str:
    with serve(answers, "secret") as url:
        variables = {"CI_API_V4_URL": url, "CI_PROJECT_ID": "7", "CI_MERGE_REQUEST_IID": "3"}
        reviews = fetch_reviews({**variables, "GITLAB_TOKEN": token})
    assert reviews is not None
    return find_approver(reviews)


def find_approver(reviews: Reviews) -> str:
    return "".join(select_reviewers(reviews, ["head"], OWNERS).find_approvers([FILE]))


@pytest.mark.parametrize(
    ("answers", "approver"),
    [
        (answer_gitlab(approve("ann")), "ann"),
        (answer_gitlab(approve("bob", id=6), approve("ann")), "ann"),
        (answer_gitlab(), ""),
        (answer_gitlab(approve("bob")), ""),
        (answer_gitlab(approve("ann", "2026-01-02T10:59:59.000+02:00")), ""),
        (answer_gitlab(approve("ann"), **{"/users/5": {"bot": True}}), ""),
        (answer_gitlab(approve("ann"), **{"/users/5": {"bot": None}}), ""),
        (answer_gitlab(approve("ann"), **{"/projects/7/members/all/5": 404}), ""),
        (
            answer_gitlab(
                approve("ann"),
                **{"/projects/7/members/all/5": {"state": "active", "access_level": 20}},
            ),
            "",
        ),
        (
            answer_gitlab(
                approve("ann"),
                **{"/projects/7/members/all/5": {"state": "blocked", "access_level": 40}},
            ),
            "",
        ),
        (
            answer_gitlab(
                approve("ann"), **{MERGE_REQUEST: {"sha": "head", "author": {"username": "ANN"}}}
            ),
            "",
        ),
        # The commit has another approval than the one that is compared, or was pushed just now.
        (
            answer_gitlab(
                approve("ann"), **{MERGE_REQUEST: {"sha": "new", "author": {"username": "eve"}}}
            ),
            "",
        ),
    ],
    ids=[
        "an owner",
        "an owner after one who is gone",
        "nobody",
        "no owner",
        "before the last push",
        "a bot",
        "perhaps a bot",
        "no member",
        "a reporter",
        "a blocked member",
        "the author",
        "a new commit",
    ],
)
def test_gitlab_names_who_approved(answers: dict[str, object], approver: str) -> None:
    assert find_gitlab_approver(answers) == approver


def test_a_version_that_is_not_the_head_was_seen_by_nobody() -> None:
    request = {"sha": "head", "author": {"username": "eve"}}
    versions = [{"head_commit_sha": "old", "created_at": "2026-01-01T09:00:00.000Z"}]
    changes = {MERGE_REQUEST: request, f"{MERGE_REQUEST}/versions": versions}
    assert find_gitlab_approver(answer_gitlab(approve("ann"), **changes)) == ""


@pytest.mark.parametrize(
    ("answers", "token", "problem"),
    [
        (answer_gitlab(approve("ann")), "", "GITLAB_TOKEN is not set; set the variable"),
        (answer_gitlab(approve("ann")), "wrong", "HTTP status 401; set the variable GITLAB_TOKEN"),
        (answer_gitlab(approve("ann"), **{"/users/5": 503}), "secret", "HTTP status 503"),
        (answer_gitlab(**{MERGE_REQUEST: "http://127.0.0.1:9/"}), "secret", "HTTP status 302"),
        (answer_gitlab(**{f"{MERGE_REQUEST}/versions": []}), "secret", "another form"),
        (
            answer_gitlab({"user": None, "approved_at": "2026-01-02T10:00:00.000Z"}),
            "secret",
            "another form",
        ),
        (answer_gitlab(approve("ann"), **{"/users/5": {}}), "secret", "another form"),
        (answer_gitlab({"user": {"id": 5, "username": "ann"}}), "secret", "this release of GitLab"),
    ],
)
def test_a_host_that_does_not_answer_has_no_approvals(
    answers: dict[str, object], token: str, problem: str
) -> None:
    with pytest.raises(ExporterError) as caught:
        find_gitlab_approver(answers, token)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert str(caught.value).startswith("GitLab: the approvals are unknown: ")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def answer_github(**changes: object) -> dict[str, object]:
    node = {
        "state": "APPROVED",
        "author": {"__typename": "User", "login": "ann"},
        "commit": {"oid": "head"},
    } | changes
    request = {
        "headRefOid": "head",
        "author": {"login": "eve"},
        "latestOpinionatedReviews": {"nodes": [node]},
    }
    return {"/graphql": {"data": {"repository": {"pullRequest": request}}}}


@pytest.mark.parametrize(
    ("answers", "approver"),
    [
        (answer_github(), "ann"),
        (answer_github(state="CHANGES_REQUESTED"), ""),
        (answer_github(author={"__typename": "Bot", "login": "ann"}), ""),
        (answer_github(author=None), ""),
        (answer_github(author={"__typename": "User", "login": "bob"}), ""),
        (answer_github(commit={"oid": "old"}), ""),
        (answer_github(commit=None), ""),
        ({"/graphql": {"data": {"repository": None}, "errors": [{}]}}, None),
        ({"/graphql": 403}, None),
    ],
)
def test_github_names_who_approved(answers: dict[str, object], approver: str | None) -> None:
    with serve(answers, "Bearer secret") as url:
        variables = {"GITHUB_GRAPHQL_URL": f"{url}/graphql", "GITHUB_REPOSITORY": "a/b"}
        variables |= {"PULL_REQUEST": "3", "GH_TOKEN": "secret"}
        if approver is None:
            with pytest.raises(ExporterError, match="GitHub: the approvals are unknown"):
                fetch_reviews(variables)
            return
        reviews = fetch_reviews(variables)
    assert reviews is not None
    assert find_approver(reviews) == approver


def test_a_job_without_a_pull_request_has_no_reviews() -> None:
    assert fetch_reviews({"CI": "true", "GITLAB_TOKEN": "secret"}) is None
    assert fetch_reviews({"PULL_REQUEST": "", "GH_TOKEN": "secret"}) is None


def test_the_gate_forgets_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_MERGE_REQUEST_IID", "3")
    monkeypatch.setenv("CI_API_V4_URL", "ftp://host")
    monkeypatch.setenv("CI_PROJECT_ID", "7")
    monkeypatch.setenv("GITLAB_TOKEN", "secret")
    reviews, unknown = gate_command.find_reviews("host")
    assert (reviews, unknown.partition(";")[0]) == (
        None,
        "GitLab: the approvals are unknown: its answer has another form",
    )
    assert "GITLAB_TOKEN" not in os.environ
