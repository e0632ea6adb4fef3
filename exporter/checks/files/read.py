"""Split off; to be described."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError


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
