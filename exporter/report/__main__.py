"""`python -m exporter.report`: writes the committed schema of the results under docs/.

In: the classes of `record.py`. Out: docs/results.schema.json.
"""

from __future__ import annotations

from pathlib import Path

from exporter.core.atomic_files import write_text
from exporter.report.json_schema import FILE, schema_text


def main(docs: Path = Path("docs")) -> None:
    """Writes the file into the folder."""
    write_text(docs / FILE, schema_text())


if __name__ == "__main__":
    main()
