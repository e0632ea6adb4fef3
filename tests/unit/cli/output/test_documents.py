"""The documents of `--json` match their schemas and have the facts of the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from exporter.cli.entry_point import run
from exporter.records.record import Status
from tests.integration.results import make_green_project, write_results


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_green_project(tmp_path)


def read_document(
    root: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*words, "--json", "--root", str(root)]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert run(["schema", words[0]]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "other": 1}, schema)
    return document


def test_a_plan(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = root / "manifests/net.toml"
    skip = 'skip = [{ opset = 17, reason = "too old" }]\n'
    manifest.write_text(manifest.read_text() + skip)
    cells = read_document(root, capsys, "plan")["cells"]
    assert [(cell["cell"], cell["action"]) for cell in cells] == [
        ("net/17/cpu", "skip"),
        ("net/18/cpu", "run"),
    ]
    assert cells[0]["reason"] == "too old"
    assert (cells[1]["exporter"], cells[1]["capture"]) == ("dynamo", "export")


def test_a_list_has_the_problems_of_invalid_entries(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "manifests/bad.toml").write_text("format = 1\n[models.bad]\nopsets = 18\n")
    net, bad = sorted(
        read_document(root, capsys, "list")["models"], key=lambda model: bool(model["problems"])
    )
    assert (net["entry"], net["cells"]) == ("manifests/net.toml:2", ["net/17/cpu", "net/18/cpu"])
    assert "source" in bad["problems"][0]


def test_an_explanation(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = read_document(root, capsys, "explain", "net/18")
    settings = {each["key"]: each for each in document["settings"]}
    assert settings["source"]["origin"] == "manifests/net.toml:3"
    assert document["cell"] == "net/18/cpu"


def test_a_gate(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "--root", str(root)]) == 0
    passed = read_document(root, capsys, "gate")
    assert (passed["is_passed"], passed["findings"]) == (True, [])
    write_results(root, Status.TIMEOUT)
    blocked = read_document(root, capsys, "gate", code=1)
    assert not blocked["is_passed"]
    assert [finding["cells"] for finding in blocked["findings"]] == [["net/17/cpu", "net/18/cpu"]]
    first = blocked["findings"][0]
    assert (first["before"], first["code"]) == ("pass", "E-timeout")
    assert first["locations"] == ["manifests/net.toml:2"]
    assert first["commands"] == ["exporter export 'net/17/cpu'"]


def test_a_gate_with_an_unreadable_manifest_is_not_passed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["baseline", "--root", str(root)]) == 0
    (root / "manifests/bad.toml").write_text("[")
    document = read_document(root, capsys, "gate", code=2)
    assert not document["is_passed"]
    assert document["problems"][0].startswith("manifests/bad.toml:1: ")


def test_an_examination(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "doctor"]) == 0
    schema = json.loads(capsys.readouterr().out)
    finding = {"level": "note", "subject": "torch", "message": "old"}
    jsonschema.validate({"findings": [finding]}, schema)
