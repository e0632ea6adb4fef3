"""The committed schema of the results is that of the classes, and it can say no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from exporter.records.record import CheckResult, Status
from exporter.report.__main__ import main
from exporter.report.json_schema import schema, schema_text
from tests.unit.factory import make_record, make_run

_DOCS = Path(__file__).parents[3] / "docs"


def results() -> dict[str, Any]:
    check = CheckResult(check="parity", status=Status.FAIL, metrics={"max_abs": 1.5, "samples": 1})
    run = make_run(*(make_record(f"net/{n}/cpu", s, checks=(check,)) for n, s in enumerate(Status)))
    found: dict[str, Any] = json.loads(run.to_json())
    return found


def test_the_committed_file_is_up_to_date(tmp_path: Path) -> None:
    main(tmp_path)
    committed = (_DOCS / "results.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(), "run `python -m exporter.report`"
    assert (tmp_path / "results.schema.json").read_text(encoding="utf-8") == committed


def test_results_of_every_status_fit() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(results(), schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("format",), 2),
        (("records", 0, "status"), "fine"),
        (("records", 0, "cell", "opset"), "18"),
        (("records", 0, "surprise"), 1),
        (("tools",), None),
    ],
)
def test_what_is_none_of_ours_does_not_fit(where: tuple[Any, ...], value: object) -> None:
    found: Any = results()
    target = found
    for step in where[:-1]:
        target = target[step]
    target[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema(), jsonschema.Draft202012Validator)


def test_fields_say_what_they_are() -> None:
    record = schema()["$defs"]["Record"]["properties"]
    assert record["log"]["description"] == "What the worker printed, relative to the build folder."
