"""The jinja2 environment, and where templates are found.

In: the project's own folder of templates, if it has one. Out: rendered text.

A project overrides the packaged templates file by file. Templates are trusted like code; what they
show is not, and goes through `markdown.inline` unless a filter made it harmless another way.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from exporter.core.command_names import DEFAULT_COMMAND, format_command
from exporter.core.errors import (
    ExitCode,
    ExporterError,
    Location,
    Problem,
)
from exporter.manifest import Style
from exporter.report.pages.template_folder import find_packaged_templates
from exporter.report.text import markdown

_SUFFIX = ".jinja"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How a project wants to be spoken to."""

    style: Style = "emoji"
    command: str = DEFAULT_COMMAND


PLAIN = RenderOptions()


def render(
    name: str, folder: Path | None, spoken: RenderOptions = PLAIN, /, **values: object
) -> str:
    """Renders the template `name`, from `folder` if that has it, as the project spells it.

    Raises:
        ExporterError: MANIFEST, where a template is wrong, with its file and line.
    """
    return _rendered(_environment(folder, spoken), name, values)


def preload(name: str, folder: Path | None, spoken: RenderOptions = PLAIN) -> None:
    """Reads the template `name`; one that cannot be read is left to `render`, which says why."""
    with suppress(jinja2.TemplateError, UnicodeDecodeError, OSError):
        _environment(folder, spoken).get_template(name + _SUFFIX)


def render_html(name: str, folder: Path | None, **values: object) -> str:
    """The same for HTML: every value is escaped that is no `Markup`."""
    return _rendered(_environment(folder).overlay(finalize=_as_it_is), name, values)


def render_script(name: str, **values: object) -> str:
    """The same for Python, of the packaged template alone: every value stands as it is."""
    environment = _environment(None).overlay(autoescape=False, finalize=_as_it_is)
    return _rendered(environment, name, values)


def read_template_file(name: str, folder: Path | None) -> str:
    """A file of the templates' folders that is none itself, as it stands.

    Raises:
        ExporterError: MANIFEST, where it is no text.
    """
    environment = _environment(folder)
    try:
        return jinja2.FileSystemLoader(_folders(folder)).get_source(environment, name)[0]
    except (jinja2.TemplateNotFound, UnicodeDecodeError) as error:
        problem = Problem(message="no text can be read here", location=Location(file=name))
        raise ExporterError(ExitCode.MANIFEST, [problem]) from error


def _as_it_is(value: object) -> object:
    return value


def _rendered(environment: jinja2.Environment, name: str, values: dict[str, object]) -> str:
    try:
        return environment.get_template(name + _SUFFIX).render(values)
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        place = _place(error, name + _SUFFIX)
        if place is None:
            raise
        message = getattr(error, "message", None) or str(error)
        problem = Problem(message=f"the template cannot be rendered: {message}", location=place)
        raise ExporterError(ExitCode.MANIFEST, [problem]) from error


@lru_cache(maxsize=8)
def _environment(folder: Path | None, spoken: RenderOptions = PLAIN) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folders(folder)),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=markdown.escape_inline,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    has_symbols = spoken.style == "emoji"
    environment.filters.update(
        code=markdown.format_code,
        sign=lambda mark: mark.symbol if has_symbols else mark.word,
        icon=lambda mark: Markup("{} ").format(mark.symbol) if has_symbols else "",
        command=lambda words: format_command(spoken.command, *words.split(maxsplit=1)),
        fence=markdown.format_fence,
        join=markdown.join_escaped,
        target=markdown.quote_link_target,
    )
    return environment


def _folders(folder: Path | None) -> list[Path]:
    return [path for path in (folder, find_packaged_templates()) if path is not None]


def _place(error: Exception, name: str) -> Location | None:
    """The line of the template at which it went wrong; None where that is no template's."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return Location(file=error.filename or name, line=error.lineno)
    if isinstance(error, jinja2.TemplateNotFound):
        return Location(file=str(error.name))
    if isinstance(error, UnicodeDecodeError):
        return Location(file=name)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if frame.filename.endswith(_SUFFIX)]
    return Location(file=lines[-1].filename, line=lines[-1].lineno) if lines else None
