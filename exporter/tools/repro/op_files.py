"""The custom operators of one cell, as the tables that a reproducer's script goes by.

In: the contract of a cell and its exporter. Out: literals. The functions that they name lie beside
the script, or in packages; the script imports them.
"""

from __future__ import annotations

from collections.abc import Iterable

from exporter.manifest import ModelSpec
from exporter.manifest.spec.model import ExporterName


def custom_tables(spec: ModelSpec, opset: int, exporter: ExporterName) -> dict[str, object]:
    """References by what the script does with them; empty where the cell has none."""
    if not spec.custom_ops:
        return {}
    ways: dict[str, dict[str, str]] = {"symbolic": {}, "onnxscript": {}, "translation": {}}
    own = ("translation",) if exporter == "dynamo" else ("symbolic", "onnxscript")
    # Of several entries for one operator, the highest that is not above the opset counts.
    for op in sorted(spec.custom_ops, key=lambda op: op.opset):
        for way in own:
            if op.opset <= opset and (reference := getattr(op, way)):
                for others in ways.values():
                    others.pop(op.name, None)
                ways[way][op.name] = reference
    return {
        "symbolics": ways["symbolic"],
        "functions": ways["onnxscript"],
        "translations": ways["translation"],
        "libraries": _each(op.ort_library for op in spec.custom_ops),
        "operators": _each(op.reference for op in spec.custom_ops),
    }


def _each(references: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in references if text))
