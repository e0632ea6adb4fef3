"""`python -m exporter.manifest`: writes the committed schema and reference under docs/.

In: the classes of `entry.py` and `settings.py`. Out: docs/manifest.schema.json, docs/manifest.md.
"""

from __future__ import annotations

from pathlib import Path

from exporter.manifest.schema.json_schema import schema_text
from exporter.manifest.schema.reference_docs import reference_text


def main(docs: Path = Path("docs")) -> None:
    """Writes both files into the folder."""
    docs.mkdir(exist_ok=True)
    (docs / "manifest.schema.json").write_text(schema_text(), encoding="utf-8")
    (docs / "manifest.md").write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
