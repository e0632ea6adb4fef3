"""Calls of functions in child processes, because an import, a runtime or a model may crash.

The parent names the function, since its module may import packages that the parent must not
import. Arguments and result are JSON, which the annotations of the function describe.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, create_model
from pydantic_core import from_json, to_json

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import redact
from exporter.processes.request import ChildResult, send_request

T = TypeVar("T")

_MODULE = "exporter.processes.child_call"
_MESSAGE_LENGTH = 2000
_CODES = frozenset(ExitCode) - {ExitCode.OK}


class ChildFailure(Exception):
    """The process ended without a result; the message is a phrase such as `exited with code 1`."""

    def __init__(self, result: ChildResult) -> None:
        super().__init__(redact(result.describe_end(), limit=_MESSAGE_LENGTH))
        self.code = result.code
        """The exit code, less than 0 for a signal; None after a timeout."""


def call_in_child(
    function: str,
    arguments: Mapping[str, object],
    returns: type[T],
    environment: Mapping[str, str] | None,
    *,
    seconds: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> T:
    """Call a function in a child process and return its result.

    Args:
        function: `package.module:function`. Its parameters and its result have annotations.
        arguments: The arguments by name.
        returns: The type of the result.
        environment: All variables of the process; None: those of this process, with which it ends.
        seconds: The limit of the call; see `send_request`.
        on_line: Called with each line that the function prints.

    Raises:
        ExporterError: if the function raised it.
        ChildFailure: if the process ended without a result.
    """
    call = to_json({"function": function, "arguments": arguments}, inf_nan_mode="constants")
    result = send_request(
        _MODULE,
        call.decode(),
        environment,
        timeout=seconds,
        on_line=on_line,
        own_group=environment is not None,
    )
    if result.code == 0 and result.response is not None:
        return TypeAdapter(returns).validate_json(result.response)
    if result.code in _CODES and result.response is not None:
        message = redact(result.response.decode(errors="replace"), limit=_MESSAGE_LENGTH)
        raise ExporterError(ExitCode(result.code), message)
    raise ChildFailure(result)


def _call(content: bytes) -> tuple[int, bytes]:
    """Return the exit code with the result as JSON, or with the message of the error."""
    call = from_json(content)
    module, _, name = call["function"].partition(":")
    names = call["arguments"]
    try:
        function = getattr(importlib.import_module(module), name)
        hints = get_type_hints(function)
        fields: dict[str, Any] = {each: (hints[each], ...) for each in names}
        # JSON again, in which a list can be a tuple.
        arguments = to_json(names, inf_nan_mode="constants")
        values = create_model("Arguments", **fields).model_validate_json(arguments)
        result = function(**{each: getattr(values, each) for each in names})
    except ExporterError as error:
        return error.exit_code, str(error).encode()
    return ExitCode.OK, to_json(result, inf_nan_mode="constants")


def main() -> None:
    """Serve one call and end without the exit handlers of libraries, which may fail."""
    request, response = (Path(argument) for argument in sys.argv[1:3])
    code, content = _call(request.read_bytes())
    part = response.with_suffix(".part")
    part.write_bytes(content)
    part.replace(response)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
