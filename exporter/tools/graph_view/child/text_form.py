"""A model in, ONNX's own text form out."""

from __future__ import annotations

from onnx import ModelProto, printer

from exporter.core.sanitize import printable


def text(model: ModelProto) -> str:
    """The text of a model, with nothing in it that steers a terminal."""
    return printable(printer.to_text(model)) + "\n"
