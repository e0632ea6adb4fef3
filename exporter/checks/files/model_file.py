"""The reader of an ONNX file."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError


class UnreadableModel(Exception):
    """The file is missing or is not an ONNX file."""


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model without its external data.

    Raises:
        UnreadableModel: if the file cannot be read; its message contains no path of this machine.
    """
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise UnreadableModel(f"{path.name}: cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError) as error:
        raise UnreadableModel(f"{path.name}: is not an ONNX file, cannot be parsed") from error
