"""The committed schema and reference match the classes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from benchmarks.documents import COMMON_KEYS, format_reference, main
from benchmarks.manifest_schema import build_schema
from exporter.manifest import load_project
from exporter.manifest.schema import entry, settings, tables
from exporter.manifest.syntax.table import Table

_DOCS = Path(__file__).parents[4] / "docs"
_TABLES = [
    table
    for module in (tables, entry, settings)
    for table in vars(module).values()
    if isinstance(table, type) and issubclass(table, Table) and table.model_fields
]


def test_committed_files_are_up_to_date(tmp_path: Path) -> None:
    main(tmp_path)
    written = sorted(tmp_path.iterdir())
    stale = [path.name for path in written if path.read_bytes() != (_DOCS / path.name).read_bytes()]
    assert not stale, "run `python -m benchmarks.documents`"
    assert len(written) == 4


@pytest.mark.parametrize("page", ["manifest.md", "manifest-keys.md"])
def test_the_examples_of_the_most_used_keys_are_valid(tmp_path: Path, page: str) -> None:
    text = (_DOCS / page).read_text("utf-8").partition("\n## The ten most used")[2]
    block = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/nets.toml").write_text(f"format = 1\n\n{block}")
    (tmp_path / "manifests/tagger.safetensors").touch()
    (tmp_path / "manifests/nets.py").write_text("class Tagger: pass\nclass Decoder: pass\n")
    settings_text = '[tool.exporter]\ndevices.openvino = { runtime = "openvino" }\n'
    (tmp_path / "pyproject.toml").write_text(settings_text)
    assert load_project(tmp_path).models
    keys = {word for model in tomllib.loads(block)["models"].values() for word in model}
    assert len(keys) > 9


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(build_schema())


def test_every_key_has_a_description() -> None:
    common = format_reference()
    page = common + format_reference(common=False)
    assert len(_TABLES) > 15
    for table in _TABLES:
        for key in table.model_fields:
            assert f"| `{key}` | " in page, f"{table.__name__}.{key}"
    assert len({key for keys in COMMON_KEYS.values() for key in keys}) == 20
    assert common.count("\n| `") == sum(map(len, COMMON_KEYS.values()))
    for line in page.splitlines():
        if line.startswith("| `"):
            assert line.rstrip(" |").count(" | ") >= 2, f"no meaning: {line}"


def test_no_key_is_both_valid_and_misplaced() -> None:
    for table in _TABLES:
        assert set(table.misplaced_keys).isdisjoint(table.model_fields)


def test_the_stages_of_expectations_are_those_of_records() -> None:
    """The manifest does not import records, so both list the stages."""
    from exporter.records.record import Stage

    stages = build_schema()["$defs"]["ExpectTable"]["properties"]["stage"]["enum"]
    assert stages == [stage.value for stage in Stage]
