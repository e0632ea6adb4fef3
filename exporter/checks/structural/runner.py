"""What structure checks share: reading the file, and one result out of many findings.

In: a `Subject` and what to look for. Out: a `CheckResult` that names everything at once. Weights
that lie outside the file are never loaded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from exporter.checks.protocol import Subject
from exporter.record import CheckResult, Status

Find = Callable[[Subject, onnx.ModelProto], Iterable[str]]


class Unreadable(Exception):
    """The file is missing, or is no ONNX."""


def read_model(path: Path) -> onnx.ModelProto:
    """The model without its external data.

    Raises:
        Unreadable: with a message that holds no path of this machine.
    """
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError) as error:
        raise Unreadable(f"{path.name} is no ONNX file: it cannot be parsed") from error


def hold_structure(check: str, subject: Subject, find: Find) -> CheckResult:
    """Passes where `find` finds nothing in the file."""
    try:
        problems = tuple(find(subject, read_model(subject.path)))
    except Unreadable as unreadable:
        problems = (str(unreadable),)
    return CheckResult(
        check=check,
        status=Status.FAIL if problems else Status.PASS,
        message="; ".join(problems),
    )
