"""The keys for a user of the file reach the contract, which other processes read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ModelSpec, load_project
from tests.unit.manifest.projects import make_project


@pytest.mark.parametrize(
    "table",
    [
        '{ function = "../net.py:prepare" }',
        "{ range = [0, 1] }",
        '{ layout = "NC" }',
        '{ layout = "NC", colour = "RGB", range = [0, 255], mean = [1], std = [2, 3, 4] }',
    ],
)
@pytest.mark.parametrize("labels", ['["cat", "dog", "cow"]', '"../labels.txt"'])
def test_a_contract_with_descriptions_is_read_again(
    table: str, labels: str, tmp_path: Path
) -> None:
    manifest = f"""format = 1
[models.net]
source = "../net.py:Net"
inputs = [{{ name = "x", shape = ["batch", 3], meaning = "features", preprocess = {table} }}]
outputs = [{{ name = "y", shape = ["batch", 3], meaning = "logits", labels = {labels} }}]
opsets = 18
metadata = {{ rate = "16000" }}
"""
    files = {
        "manifests/net.toml": manifest,
        "net.py": "class Net: ...\ndef prepare(sample): ...\n",
        "labels.txt": "\ufeffcat\ndog\r\n  cow\n\n",
    }
    (spec,) = load_project(make_project(tmp_path, files)).models
    assert ModelSpec.read(spec.to_json()) == spec
    assert spec.outputs[0].labels == ("cat", "dog", "cow")
    assert spec.inputs[0].meaning == "features"
    assert spec.metadata == {"rate": "16000"}
