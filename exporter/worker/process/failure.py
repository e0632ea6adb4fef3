"""How a failing model is told apart from a failing worker.

In: an exception from user code or from torch. Out: a `Failure` with one line for the table and a
tail for the page.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from exporter.core.sanitize import redact
from exporter.records.record import MissingOperator, Stage, Status

_DETAIL_LINES = 30
_MESSAGE_LENGTH = 400
#: Sentences that torch wraps around the cause: they say at which step, which the stage says too.
_WRAPPERS = re.compile(
    r"Failed to (export the model|decompose the FX graph|convert the exported program)"
)


class Failure(Exception):
    """The model failed at a stage; becomes the record of every cell that the stage serves."""

    def __init__(
        self, stage: Stage, message: str, *, detail: str = "", status: Status = Status.ERROR
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.status = status
        self.message = message
        self.detail = detail
        self.missing: tuple[MissingOperator, ...] = ()
        """Every operator that the exporter lacks, once somebody has looked for them."""
        self.advice: tuple[str, ...] = ()
        """What to write in the manifest, where torch says so."""


@contextmanager
def wrap_errors(stage: Stage) -> Iterator[None]:
    """Turns whatever the model or torch raises inside into a `Failure` of that stage."""
    try:
        yield
    except Failure:
        raise
    except MemoryError as error:
        raise Failure(
            stage, format_error(error), detail=format_traceback_tail(error), status=Status.KILLED
        ) from error
    except Exception as error:
        raise Failure(stage, format_error(error), detail=format_traceback_tail(error)) from error


def format_error(error: BaseException) -> str:
    """The line that says most: the innermost cause that is not one of torch's wrappers."""
    messages = [_first_line(item) for item in _causes(error)]
    telling = [message for message in messages if not _WRAPPERS.search(message)]
    return format_message((telling or messages)[-1])


def format_traceback_tail(error: BaseException) -> str:
    """The end of the traceback, without this machine's folders and addresses."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(redact(line, limit=1000) for line in lines[-_DETAIL_LINES:])


def format_message(text: str) -> str:
    """`text` as a message: on one line, without this machine's folders, of bounded length."""
    return redact(" ".join(text.split()), limit=_MESSAGE_LENGTH)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        # A context that nobody suppressed is no cause: torch raises from inside `except` often.
        current = current.__cause__


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if not lines:
        return name
    # torch.export says in the first line that sizes are in conflict, and which in a list below it.
    reasons = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if reasons and lines[0].startswith("Constraints violated"):
        return f"{name}: {lines[0].split('!')[0]}: {reasons[0]}"
    if reasons and lines[0].startswith("Found the following conflicts"):
        return f"{name}: {reasons[0]}"
    return f"{name}: {lines[0]}"
