"""The notation of checks in `expect`: `"parity"` or `["parity", "values"]`."""

from __future__ import annotations

from exporter.core.check_names import CHECK_STAGES
from exporter.core.errors import suggest_nearest
from exporter.manifest.syntax.message_format import join_words, quote, unexpected_value


def parse_check_names(value: object) -> tuple[str, ...]:
    """Return the names of a check or of a list of different checks.

    Raises:
        ValueError: with the complete message.
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise unexpected_value("the name of a check or a list of names", value)
    for name in names:
        if name not in CHECK_STAGES:
            expected = f"the name of a check: {join_words(map(quote, CHECK_STAGES), 'or')}"
            hint = suggest_nearest(name, CHECK_STAGES) if isinstance(name, str) else ""
            raise ValueError(f"{unexpected_value(expected, name)}{hint}")
    if len(set(names)) < len(names):
        raise ValueError(f"contains a name twice: {join_words(map(quote, names))}")
    return tuple(names)
