"""`python -m exporter.manifest`: write the committed schema and reference of the manifest."""

from __future__ import annotations

from pathlib import Path

from exporter.manifest.schema.documents import format_reference, format_schema


def main(docs: Path = Path("docs")) -> None:
    """Write the files into the folder."""
    docs.mkdir(exist_ok=True)
    (docs / "manifest.schema.json").write_text(format_schema(), encoding="utf-8")
    for name, common in (("manifest.md", True), ("manifest-keys.md", False)):
        (docs / name).write_text(format_reference(common=common), encoding="utf-8")


if __name__ == "__main__":
    main()
