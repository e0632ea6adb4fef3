"""The manifest of a row."""

from __future__ import annotations

from typing import Any

import tomli

from exporter.manifest.syntax.values import parse_opsets
from tests.features.feature import MODEL, Feature

#: Keys of an entry that the lines of a row may replace.
DEFAULTS = {
    "inputs": 'inputs = [{ name = "x", shape = ["batch", 4] }]',
    "outputs": 'outputs = [{ name = "y", shape = ["batch", 4] }]',
    "opsets": "opsets = [13, 18]",
}


def manifest_text(feature: Feature) -> str:
    """Return the manifest of a row."""
    lines = "\n".join(text.strip("\n") for text in (feature.rest, feature.lines) if text)
    entry = _entry(f"[models.{MODEL}]\n{lines}")
    defaults = dict(DEFAULTS)
    if feature.model:
        defaults = {"source": f'source = "{feature.model}"', **defaults}
    missing = [line for key, line in defaults.items() if key not in entry]
    return "\n".join(["format = 1", "", f"[models.{MODEL}]", *missing, lines, ""])


def opsets_of(feature: Feature) -> tuple[int, ...]:
    """Return the opsets of the row's model."""
    return parse_opsets(_entry(manifest_text(feature))["opsets"])


def _entry(text: str) -> dict[str, Any]:
    entry: dict[str, Any] = tomli.loads(text)["models"][MODEL]
    return entry
