"""Rendering of templates with jinja2.

A file of the project replaces the packaged template with the same name. Templates are trusted like
code. The values that they show are not: `formats.escape_inline` escapes them, unless a filter has
done it.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from markupsafe import Markup

from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.core.files import TEXT_LIMIT, leads_out_of_checkout, read_regular_file
from exporter.core.text import (
    DEFAULT_COMMAND,
    find_packaged_folder,
    format_command,
    remove_controls,
)
from exporter.manifest import Style
from exporter.report import formats

if TYPE_CHECKING:
    # The functions import it: commands that render nothing need not load it.
    import jinja2


def find_packaged_templates() -> Path:
    return find_packaged_folder("templates")


_SUFFIX = ".jinja"
#: Characters. With shorter names, a table of eight devices fits a page of 869 pixels.
_LONG_NAME = 11


def render(
    name: str,
    folder: Path | None,
    style: Style = "emoji",
    command: str = DEFAULT_COMMAND,
    /,
    **values: object,
) -> str:
    """Render a template for markdown; each value is escaped.

    Raises:
        ExporterError: MANIFEST with file and line, if the template is invalid.
    """
    return _render(_create_environment(folder, style, command), name, values)


def preload(name: str, folder: Path, style: Style, command: str) -> None:
    """Compile a template; `render` reports its errors later."""
    import jinja2

    with suppress(jinja2.TemplateError, ExporterError, UnicodeDecodeError):
        _create_environment(folder, style, command).get_template(name + _SUFFIX)


def render_html(name: str, folder: Path | None, **values: object) -> str:
    """Render a template for HTML; each value that is no `Markup` is escaped."""
    return _render(_create_html_environment(folder), name, values)


def render_script(name: str, **values: object) -> str:
    """Render a packaged template for Python or a terminal; values are inserted without escapes."""
    from jinja2.filters import do_join

    environment = _create_environment(None).overlay(autoescape=False, finalize=_return_unchanged)
    environment.filters = {**environment.filters, "join": do_join}
    return _render(environment, name, values)


def read_template_file(name: str, folder: Path | None) -> str:
    """Return a file of the template folders that is no template itself.

    Raises:
        ExporterError: MANIFEST, if the file is no text.
    """
    try:
        source = _read_file(folder, name)
    except UnicodeDecodeError:
        source = None
    if source is None:
        problem = Problem(message="cannot be read as text", location=Location(file=name))
        raise ExporterError(ExitCode.MANIFEST, [problem])
    return source[0]


def _read_file(folder: Path | None, name: str) -> tuple[str, str] | None:
    """Return the text and the path of a file of the template folders, or None if there is none.

    Raises:
        ExporterError: MANIFEST, if it is a pipe or a device, or a link out of the repository: a
            page would show a file of this machine.
    """
    if ".." in PurePath(name).parts or PurePath(name).is_absolute():
        return None
    for path in (each / name for each in _list_folders(folder)):
        if not os.path.lexists(path) or path.is_dir():
            continue
        text = "is a symlink out of the repository; copy the file"
        try:
            if not leads_out_of_checkout(path):
                content = read_regular_file(path, TEXT_LIMIT, may_be_link=True)
                return content.decode().replace("\r\n", "\n").replace("\r", "\n"), str(path)
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
        problem = Problem(message=text, location=Location(file=str(path)))
        raise ExporterError(ExitCode.MANIFEST, [problem])
    return None


def _stat(path: str) -> tuple[int, ...]:
    with suppress(OSError):
        state = os.stat(path)  # noqa: PTH116 - for each page and each template
        return state.st_mtime_ns, state.st_size, state.st_ino
    return ()


def _clean_text(value: object) -> object:
    """Return text of a model without controls and invisible characters; autoescape follows."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return remove_controls(value)
    return value


def _return_unchanged(value: object) -> object:
    return value


def _break_name(name: str) -> Markup:
    """Return an escaped name; a table may break a long one after each underscore."""
    text = formats.escape_inline(name)
    return text.replace("_", Markup("_<wbr>")) if len(name) > _LONG_NAME else text


#: A space or a hyphen at which no line may break: `2 MB`, `≤ 10`, `61 100 840`, `1e-4`.
_TIGHT = re.compile(
    r"(?<=≤) |(?<=\d) (?=(?:B|kB|MB|GB|TB|s|ms|µs|%)(?![\w])|\d{3}(?!\d))|(?<=\de)-(?=\d)"
)


def _hold_together(value: object) -> Markup:
    """Return escaped text in which no line breaks inside of a number, or before its unit."""

    def replace(match: re.Match[str]) -> str:
        return "&nbsp;" if match[0] == " " else "&#8209;"

    return Markup(_TIGHT.sub(replace, formats.escape_inline(value)))  # noqa: S704 - escaped


def _render(environment: jinja2.Environment, name: str, values: dict[str, object]) -> str:
    import jinja2

    try:
        return environment.get_template(name + _SUFFIX).render(values)
    except ExporterError:
        raise
    except Exception as error:
        location = _find_location(error, name + _SUFFIX)
        if location is None:
            raise
        is_known = isinstance(error, jinja2.TemplateError | TypeError | ValueError)
        message = getattr(error, "message", None) or str(error)
        message = message if is_known else f"{type(error).__name__}: {message}"
        problem = Problem(message=f"the template cannot be rendered: {message}", location=location)
        raise ExporterError(ExitCode.MANIFEST, [problem]) from error


@lru_cache(maxsize=8)
def _create_environment(
    folder: Path | None, style: Style = "emoji", command: str = DEFAULT_COMMAND
) -> jinja2.Environment:
    import jinja2

    def load(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        source = _read_file(folder, name)
        if source is None:
            return None
        state = _stat(source[1])
        return (*source, lambda: _stat(source[1]) == state)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=formats.escape_inline,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    has_symbols = style == "emoji"
    environment.filters.update(
        code=formats.format_code,
        sign=lambda mark: mark.symbol if has_symbols else mark.word,
        icon=lambda mark: Markup("{} ").format(mark.symbol) if has_symbols else "",
        command=lambda words: format_command(command, *words.split(maxsplit=1)),
        fence=formats.format_fence,
        sentence=formats.format_sentence,
        join=formats.join_escaped,
        target=formats.quote_link_target,
        breakable=_break_name,
        whole=_hold_together,
        place=formats.format_place,
    )
    return environment


@lru_cache(maxsize=8)
def _create_html_environment(folder: Path | None) -> jinja2.Environment:
    # An overlay compiles its templates itself, so each page needs the same one.
    return _create_environment(folder).overlay(finalize=_clean_text)


def _list_folders(folder: Path | None) -> list[Path]:
    return [path for path in (folder, find_packaged_templates()) if path is not None]


def _find_location(error: Exception, name: str) -> Location | None:
    """Return the line of the template that raised the error, or None if no template did."""
    import jinja2

    if isinstance(error, jinja2.TemplateSyntaxError):
        return Location(file=error.filename or name, line=error.lineno)
    if isinstance(error, jinja2.TemplateNotFound):
        return Location(file=str(error.name))
    if isinstance(error, UnicodeDecodeError):
        return Location(file=name)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if frame.filename.endswith(_SUFFIX)]
    return Location(file=lines[-1].filename, line=lines[-1].lineno) if lines else None
