"""The committed schema of the results matches the classes and rejects other data."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from benchmarks.documents import build_results_schema
from exporter.records.record import CheckResult, Status
from tests.unit.factory import make_record, make_run


def results() -> dict[str, Any]:
    check = CheckResult(check="parity", status=Status.FAIL, metrics={"max_abs": 1.5, "samples": 1})
    run = make_run(*(make_record(f"net/{n}/cpu", s, checks=(check,)) for n, s in enumerate(Status)))
    content: dict[str, Any] = json.loads(run.to_json())
    return content


def test_results_of_every_status_are_accepted() -> None:
    jsonschema.Draft202012Validator.check_schema(build_results_schema())
    jsonschema.validate(results(), build_results_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 99),
        (("records", 0, "status"), "fine"),
        (("records", 0, "cell", "opset"), "18"),
        (("records", 0, "surprise"), 1),
        (("tools",), None),
    ],
)
def test_other_data_is_rejected(path: tuple[Any, ...], value: object) -> None:
    content: Any = results()
    target = content
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, build_results_schema(), jsonschema.Draft202012Validator)


def test_fields_have_descriptions() -> None:
    record = build_results_schema()["$defs"]["Record"]["properties"]
    assert record["log"]["description"] == "The worker's output, relative to the build folder."
