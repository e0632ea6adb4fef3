"""`index.html`: one file that works from a disk and asks nothing of a network.

In: an `IndexData`. Out: HTML with the data as JSON, which only its own script may read: the page's
content security policy names the hashes of its script and style, and allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from exporter.core.frozen_model import FrozenModel
from exporter.report.pages.browser_schema import IndexData
from exporter.report.pages.templates import plain_text, render_html
from exporter.report.text.markdown import visible

#: In JSON these stand in strings only, where an escape means the same: nothing can end the block.
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def index_html(data: IndexData, folder: Path | None) -> str:
    """Renders the page.

    Args:
        data: What it shows.
        folder: The project's own templates, which go first; need not exist.

    Raises:
        ExporterError: MANIFEST, where a template is wrong.
    """
    script, style = (plain_text(name, folder) for name in ("index.js", "index.css"))
    return render_html(
        "index.html",
        folder,
        data=_embedded(data),
        summary=data.head.summary,
        script=script,
        style=style,
        script_hash=_hash(script),
        style_hash=_hash(style),
    )


def _embedded(data: IndexData) -> str:
    """JSON for a script element, a row on a line."""
    rows = ",\n".join(_json(row) for row in data.rows)
    head = _json(data.head)
    return f'{{"head":{head},\n"rows":[\n{rows}\n]}}'


def _json(value: FrozenModel) -> str:
    text = visible(value.model_dump_json(exclude_defaults=True))
    for character, escape in _ESCAPED.items():  # a tenth of what `str.translate` takes
        text = text.replace(character, escape)
    return text


def _hash(text: str) -> str:
    """A source expression of Content Security Policy level 3."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
