"""`python -m exporter.report`: write the committed schema of the results."""

from __future__ import annotations

from pathlib import Path

from exporter.core.files import write_text
from exporter.report.results_schema import FILE, format_schema


def main(docs: Path = Path("docs")) -> None:
    """Write the schema to the folder."""
    write_text(docs / FILE, format_schema())


if __name__ == "__main__":
    main()
