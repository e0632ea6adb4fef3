"""The reviews of a pull request, as the host of a CI job knows them: GitHub or GitLab.

What a host does not say is never an approval.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from typing_extensions import override

from exporter.core.errors import ExitCode, ExporterError
from exporter.gate.approvals import Approval, Reviews

#: The variables with a secret, which no later step of the gate needs.
TOKENS = ("GH_TOKEN", "GITLAB_TOKEN")
_TIMEOUT = 20
#: Bytes of an answer.
_LIMIT = 16 * 1024 * 1024
#: GitLab's access level of a person who can push to a branch.
_DEVELOPER = 30

_GITHUB_QUERY = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    headRefOid author { login }
    latestOpinionatedReviews(first: 100, writersOnly: true) {
      nodes { state author { __typename login } commit { oid } } } } } }
"""


class _UnknownError(Exception):
    """The reason why nobody is known to have approved."""


def fetch_reviews(environment: Mapping[str, str]) -> Reviews | None:
    """Ask the host of the job about its pull request; return None if the job has none.

    Raises:
        ExporterError: ENVIRONMENT if the host cannot be asked, or its answer is incomplete.
    """
    if environment.get("CI_MERGE_REQUEST_IID"):
        host, ask, token = "GitLab", _ask_gitlab, "GITLAB_TOKEN"
        needs = "set the variable GITLAB_TOKEN to a token with the scope read_api"
    elif environment.get("PULL_REQUEST"):
        host, ask, token = "GitHub", _ask_github, "GH_TOKEN"
        needs = "the job needs the permission pull-requests: read, and its token in GH_TOKEN"
    else:
        return None
    try:
        if not environment.get(token):
            raise _UnknownError(f"{token} is not set")
        return ask(environment)
    except HTTPError as error:
        error.close()
        problem = f"HTTP status {error.code}"
    except (_UnknownError, OSError, HTTPException) as error:
        problem = str(error) or type(error).__name__
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        problem = "its answer has another form"
    raise ExporterError(
        ExitCode.ENVIRONMENT, f"{host}: the approvals are unknown: {problem}; {needs}"
    )


def _ask_github(environment: Mapping[str, str]) -> Reviews:
    owner, _, name = environment["GITHUB_REPOSITORY"].partition("/")
    number = int(environment["PULL_REQUEST"])
    variables = {"owner": owner, "name": name, "number": number}
    document = _read(
        environment.get("GITHUB_GRAPHQL_URL", "https://api.github.com/graphql"),
        {"Authorization": f"Bearer {environment['GH_TOKEN']}"},
        {"query": _GITHUB_QUERY, "variables": variables},
    )
    request = document["data"]["repository"]["pullRequest"]
    approvals = (
        Approval(by=each["author"]["login"], commit=each["commit"]["oid"])
        for each in request["latestOpinionatedReviews"]["nodes"]
        if each["state"] == "APPROVED" and each["author"] and each["commit"]
        if each["author"]["__typename"] == "User"
    )
    author = request["author"] and request["author"]["login"]
    return Reviews(head=request["headRefOid"], author=author, approvals=tuple(approvals))


def _ask_gitlab(environment: Mapping[str, str]) -> Reviews:
    """Ask for the approvals of the last version of the merge request.

    GitLab keeps an approval when commits are pushed, unless a setting removes it, and names no
    commit. So one that is older than the last version is none.
    """
    api = environment["CI_API_V4_URL"]
    # A pipeline of a fork runs in the fork, and the merge request is in the target.
    id = environment.get("CI_MERGE_REQUEST_PROJECT_ID") or environment["CI_PROJECT_ID"]
    project = f"{api}/projects/{id}"
    headers = {"PRIVATE-TOKEN": environment["GITLAB_TOKEN"]}
    url = f"{project}/merge_requests/{environment['CI_MERGE_REQUEST_IID']}"
    approvals = _read(f"{url}/approvals", headers)["approved_by"]
    # Later than the approvals: a commit that is pushed in between is the head.
    request = _read(url, headers)
    versions = _read(f"{url}/versions", headers)
    since, last = max(
        (_parse_time(each["created_at"]), each["head_commit_sha"]) for each in versions
    )
    head = request["sha"]
    if last != head:  # a commit was pushed just now, and nobody has seen it
        approvals = []

    def list_approvals() -> Iterator[Approval]:
        for each in approvals:
            user = each["user"]
            if "approved_at" not in each:
                raise _UnknownError("this release of GitLab does not tell when a person approved")
            if _parse_time(each["approved_at"]) > since and can_write(user["id"]):
                yield Approval(by=user["username"], commit=head)

    def can_write(user_id: int) -> bool:
        try:
            member = _read(f"{project}/members/all/{user_id}", headers)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return False
            raise
        is_person = _read(f"{api}/users/{user_id}", headers)["bot"] is False
        return member["state"] == "active" and member["access_level"] >= _DEVELOPER and is_person

    return Reviews(
        head=head,
        author=request["author"]["username"],
        approvals=tuple(list_approvals()),
        host="GitLab",
    )


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time


class _NoRedirects(HTTPRedirectHandler):
    """Follow no address of an answer, because another host would get the token."""

    @override
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _read(url: str, headers: Mapping[str, str], body: object = None) -> Any:
    """Return the JSON document at a web address.

    Raises:
        OSError: The server does not answer, or answers with an error.
        ValueError: The answer is no JSON, or the address is none of the web.
    """
    if not url.startswith(("https://", "http://")):
        raise ValueError("no address of the web")
    data = None if body is None else json.dumps(body).encode()
    fields = {**headers, **({} if data is None else {"Content-Type": "application/json"})}
    request = Request(url, data, fields)  # noqa: S310 - the scheme is checked above
    with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT) as reader:
        return json.loads(reader.read(_LIMIT))
