"""Failures of a model, in distinction from failures of the worker."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from exporter.core.text import pluralize, redact
from exporter.records.record import Attempt, Stage, Status
from exporter.worker.process import model_lines

#: The import path and the finders before any model was loaded.
_IMPORT_PATH, _FINDERS = tuple(sys.path), tuple(sys.meta_path)
_DETAIL_LINES = 30
#: Problems of an invalid entry that its message contains; the log has all of them.
_SHOWN_PROBLEMS = 4
_MESSAGE_LENGTH = 400
#: Errors of torch that wrap the cause and name only the step, which the stage shows too.
_WRAPPERS = re.compile(
    r"Failed to (export the model|decompose the FX graph|convert the exported program)"
    r"|Error when translating node "
)
#: First lines without the reason, which is the last line.
_INTRODUCTIONS = ("The following operation failed in the TorchScript interpreter",)


class Failure(Exception):
    """An error of the model at a stage; it becomes the record of every cell of the stage."""

    def __init__(
        self,
        stage: Stage,
        message: str,
        *,
        detail: str = "",
        status: Status = Status.ERROR,
        lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.status = status
        self.message = message
        self.detail = detail
        self.lines = lines
        """The lines of the model at which it fails."""
        self.broken_pass = 0
        """The pass that failed, counted from 1."""
        self.attempts: tuple[Attempt, ...] = ()
        """All failed attempts, if there was more than one."""


def restore_import_path() -> None:
    """Put entries back that a model removed from the import path.

    Without them, this package finds neither its own modules nor the versions of packages.
    """
    current: object = sys.path
    if not isinstance(current, list):
        sys.path = []
    sys.path += [entry for entry in _IMPORT_PATH if entry not in sys.path]
    sys.meta_path += [finder for finder in _FINDERS if finder not in sys.meta_path]


def report_invalid_entry(problems: Sequence[str]) -> Failure:
    """Return the failure of a model with an invalid entry; its detail has all problems."""
    message = "; ".join(problems[:_SHOWN_PROBLEMS])
    if len(problems) > _SHOWN_PROBLEMS:
        others = pluralize(len(problems) - _SHOWN_PROBLEMS, "more problem")
        message += f" (and {others} in the log)"
    return Failure(Stage.SOURCE, message, detail="\n".join(problems))


@contextmanager
def wrap_errors(stage: Stage) -> Iterator[None]:
    """Convert every exception inside to a `Failure` of that stage."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        status = Status.KILLED if isinstance(error, MemoryError) else Status.ERROR
        restore_import_path()  # reading the error may import modules
        message, detail = format_error(error), format_traceback_tail(error)
        message, lines = model_lines.describe_origin(error, message, stage)
        raise Failure(stage, message, detail=detail, status=status, lines=lines) from error
    finally:
        restore_import_path()


def format_error(error: BaseException) -> str:
    """Return the message of the innermost cause that is not a wrapper of torch."""
    messages = [_format_first_line(each) for each in model_lines.list_causes(error)]
    specific = [message for message in messages if not _WRAPPERS.search(message)]
    return format_message((specific or messages)[0])


def format_traceback_tail(error: BaseException) -> str:
    """Return the end of the traceback without the folders and addresses of this machine."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(redact(line, limit=1000) for line in lines[-_DETAIL_LINES:])


def format_message(text: str) -> str:
    """Return `text` on one line, without the folders of this machine, with limited length."""
    return redact(" ".join(text.split()), limit=_MESSAGE_LENGTH)


def _format_first_line(error: BaseException) -> str:
    # A method `__str__` of the model can fail; this class handles it.
    text = str(traceback.TracebackException(type(error), error, None))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    name = type(error).__name__
    if not lines:
        return name
    # torch.export reports a conflict of sizes in the first line, and the sizes in a list below.
    reasons = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if reasons and lines[0].startswith("Constraints violated"):
        return f"{name}: {lines[0].split('!')[0]}: {reasons[0]}"
    if reasons and lines[0].startswith("Found the following conflicts"):
        return f"{name}: {reasons[0]}"
    if lines[0].startswith(_INTRODUCTIONS):
        return lines[-1]
    text = lines[0]
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1]}"
    # torch.compile names its general complaint first, and the object of the complaint below.
    if explanation := next((line for line in lines if line.startswith("Explanation: ")), ""):
        text = f"{text}: {explanation.removeprefix('Explanation: ')}"
    return f"{name}: {text}"
