"""Annotations of GitHub at a file and a line, and pages within GitHub's size limits.

GitHub shows 10 errors and 10 warnings of a step. If there are more, the last annotation has their
number. GitHub executes any line that begins with two colons. All other text of a model therefore
passes `escape_ci_commands`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from exporter.api.gate_run import GateResult
from exporter.cli.output.terminal import print_error
from exporter.core.errors import ExporterError, Location, Problem
from exporter.core.text import join_lines
from exporter.gate.finding import GateFinding
from exporter.pipeline.build_folder import BuildFolder
from exporter.report.formats import escape_inline
from exporter.report.rows.gate_rows import build_finding_rows

#: GitHub's limit of annotations per level and step.
_SHOWN = 10
#: GitHub's limit of characters per annotation.
_LENGTH = 4000
#: GitHub drops a larger summary of a step; in bytes.
_SUMMARY_LIMIT = 1_000_000
#: GitHub rejects a longer comment; in bytes. The job adds the commit.
_COMMENT_LIMIT = 65_000
#: The marker by which a job finds its earlier comment.
_COMMENT = "<!-- exporter gate -->\n"


Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A message at a line of a file."""

    level: Level
    title: str
    message: str
    location: Location | None = None
    """Relative to the project's root."""


def annotate(annotations: Iterable[Annotation], root: Path) -> None:
    """Print the annotations if this is a GitHub job."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    for line in format_commands(tuple(annotations), root.resolve(), workspace.resolve()):
        click.echo(line)


def report_problems(problems: Sequence[Problem], root: Path) -> None:
    """Annotate all problems that ended a command, and add them to the step's summary."""
    annotate(
        (
            Annotation(
                level="error",
                title=problem.key or "exporter",
                message=problem.message,
                location=problem.location,
            )
            for problem in problems
        ),
        root,
    )
    append_to_step_summary(format_problems(problems, "# The command failed"))


def format_problems(problems: Iterable[Problem], title: str) -> str:
    lines = "".join(f"- {escape_inline(problem)}\n" for problem in problems)
    return f"{title}\n\n{lines}"


def append_to_step_summary(page: str) -> None:
    """Append the page to GitHub's summary of the step, if this is a GitHub job."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        path = Path(summary)
        try:
            if path.exists() and not path.is_file():  # a pipe would wait for a reader
                raise OSError(errno.EINVAL, "is not a regular file")
            text = page.encode(errors="replace").decode()  # a path may have any bytes
            with path.open("a", encoding="utf-8") as file:
                file.write(shorten_page(text, _SUMMARY_LIMIT))
        except OSError as error:  # it is only a display
            print_error(f"warning: GITHUB_STEP_SUMMARY: cannot be written: {error.strerror}")


def format_commands(
    annotations: Sequence[Annotation], root: Path, workspace: Path
) -> Iterator[str]:
    """Yield one line for each annotation that GitHub shows.

    The most important annotations are first. Paths become relative to `workspace`, the checkout.
    """
    for level in ("error", "warning", "notice"):
        group = [item for item in annotations if item.level == level]
        shown = group if len(group) <= _SHOWN else group[: _SHOWN - 1]
        yield from (_format_command(item, root, workspace) for item in shown)
        if more := len(group) - len(shown):
            yield f"::{level} title=And {more} more::GitHub shows {_SHOWN}; the summary has all"


def shorten_page(page: str, limit: int) -> str:
    """Return complete lines of a page with at most `limit` bytes, and the number of the others."""
    if len(page.encode()) <= limit:
        return page
    lines = page.splitlines()
    first, size = [], len(_format_rest(len(lines)).encode())
    for line in lines:
        size += len(line.encode()) + 1
        if size > limit:
            break
        first.append(line)
    return "\n".join(first) + _format_rest(len(lines) - len(first))


def _format_rest(count: int) -> str:
    lines = "more line is" if count == 1 else "more lines are"
    return f"\n\n… {count} {lines} in `gate.md` of the job's uploaded files.\n"


def _format_command(item: Annotation, root: Path, workspace: Path) -> str:
    properties = {"title": join_lines(item.title)}
    if item.location is not None:
        path = Path(os.path.relpath(root / item.location.file, workspace)).as_posix()
        properties["file"] = path
        if item.location.line is not None:
            properties["line"] = str(item.location.line)
    text = ",".join(
        f"{name}={_escape(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    return f"::{item.level} {text}::{_escape(join_lines(item.message)[:_LENGTH])}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def describe_gate(result: GateResult) -> Iterator[Annotation]:
    """Yield one annotation for each model and for each setting, at the edited line."""
    entries = {spec.id: spec.location for spec in result.context.manifest.models}
    groups: dict[object, list[GateFinding]] = {}
    for each in result.findings:
        groups.setdefault(each.setting or each.cell.model, []).append(each)
    for group in groups.values():
        rows = build_finding_rows(group, result.context)
        first, titles = rows[0], [f"{row.subject}: {row.title}" for row in rows]
        level: Level = "error" if any(row.is_blocking for row in rows) else "warning"
        is_better = all(each.is_improvement for each in group)
        also = [f"also {title}" for title in titles[1:]]
        places = f"promised at {', '.join((*first.locations, *first.lines))}"
        fixes = [f"fix: {each}" for each in first.fixes]
        texts = (first.change, first.cause, first.message, *fixes, first.shown_by, places)
        more = (first.acceptance, first.decision)
        yield Annotation(
            level="notice" if is_better else level,
            title=titles[0],
            message=". ".join(filter(None, (*texts, *more, *first.commands, *also))),
            location=group[0].location or entries.get(group[0].cell.model),
        )


def write_pages(build_folder: BuildFolder, page: str) -> None:
    """Write the page, and the form of it that fits into a comment of a pull request."""
    try:
        build_folder.write_page("gate.md", page)
        build_folder.write_page("comment.md", shorten_page(_COMMENT + page, _COMMENT_LIMIT))
    except ExporterError as error:  # such as a checkout that is read-only
        print_error(f"warning: {error}; the verdict is not written to a page")


def find_commit_url(root: Path, environment: Mapping[str, str]) -> str:
    """Return the URL of a project's folder at the commit of a GitHub job, or ""."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_WORKSPACE")
    server, repository, commit, workspace = (environment.get(name, "") for name in names)
    if not (server and repository and commit and workspace):
        return ""
    folder = Path(os.path.relpath(root.resolve(), Path(workspace).resolve())).as_posix()
    return f"{server}/{repository}/blob/{commit}/{folder}".removesuffix("/.")
