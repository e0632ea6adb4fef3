"""`exporter schema` prints the committed schema."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from exporter.cli.commands.schema import schema

COMMITTED = Path(__file__).resolve().parents[4] / "docs" / "manifest.schema.json"


def test_the_schema_is_that_of_the_documentation() -> None:
    result = CliRunner().invoke(schema, standalone_mode=False)
    assert result.return_value == 0
    assert result.output == COMMITTED.read_text(encoding="utf-8")
