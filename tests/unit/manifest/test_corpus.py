"""The corpus of manifests: the exact problems of each invalid one, the exact result of the others.

A problem of an entry belongs in the file of its keys, one of the whole file in a file of its own.
`python -m tests.unit.manifest.test_corpus` updates the expected texts; review the difference.
"""

from __future__ import annotations

import ast
import json
import pprint
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomli

from benchmarks.manifest_schema import build_schema
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import load_project
from tests.unit.manifest.projects import DATA, copied_project

INVALID = sorted(path for path in (DATA / "invalid").iterdir() if path.suffix != ".expected")
VALID = sorted((DATA / "valid").glob("*.toml"))


def _name(path: Path) -> str:
    return path.name


def _problems(root: Path) -> str:
    with pytest.raises(ExporterError) as raised:
        load_project(root)
    assert raised.value.exit_code is ExitCode.MANIFEST == 2
    return "".join(f"{problem}\n" for problem in raised.value.problems)


def _resolved(root: Path) -> list[dict[str, Any]]:
    models = load_project(root).models
    return [model.model_dump(mode="json", exclude_defaults=True) for model in models]


@pytest.mark.parametrize("case", INVALID, ids=_name)
def test_every_problem_has_the_expected_message(case: Path, tmp_path: Path) -> None:
    expected = case.with_suffix(".expected").read_text(encoding="utf-8")
    assert _problems(copied_project(tmp_path, case)) == expected


def test_the_corpus_is_large_and_each_file_has_a_problem() -> None:
    texts = [case.with_suffix(".expected").read_text(encoding="utf-8") for case in INVALID]
    assert sum(text.count("\n") for text in texts) >= 500
    assert all(text.strip() for text in texts)
    assert not any("Traceback" in text or "/tmp" in text for text in texts)


@pytest.mark.parametrize("case", VALID, ids=_name)
def test_valid_manifests_resolve_to_the_expected_models(case: Path, tmp_path: Path) -> None:
    expected = ast.literal_eval(case.with_suffix(".expected").read_text(encoding="utf-8"))
    # A number and a truth value of the same size are equal, and their texts are not.
    assert repr(_resolved(copied_project(tmp_path, case))) == repr(expected)


@pytest.mark.parametrize("case", VALID, ids=_name)
def test_the_schema_accepts_valid_manifests(case: Path) -> None:
    document = json.loads(json.dumps(tomli.loads(case.read_text(encoding="utf-8")), default=str))
    jsonschema.Draft202012Validator(build_schema()).validate(document)


@pytest.mark.parametrize(
    "name", ["key-unknown", "types-wrong", "id-pattern", "format-missing", "mode-unknown"]
)
def test_the_schema_rejects_invalid_manifests(name: str) -> None:
    document = tomli.loads((DATA / "invalid" / f"{name}.toml").read_text(encoding="utf-8"))
    assert list(jsonschema.Draft202012Validator(build_schema()).iter_errors(document))


def test_the_manifests_of_this_project_are_valid() -> None:
    manifest = load_project(DATA.parents[2])
    assert len(manifest.models) >= 16


if __name__ == "__main__":
    for each in (*INVALID, *VALID):
        with tempfile.TemporaryDirectory() as folder:
            project = copied_project(Path(folder), each)
            if each in VALID:
                text = pprint.pformat(_resolved(project), width=100, compact=True, sort_dicts=False)
            else:
                text = _problems(project).removesuffix("\n")
            each.with_suffix(".expected").write_text(f"{text}\n", encoding="utf-8")
