"""The three forms of `parameters`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ParameterNames
from tests.unit.manifest.projects import load_model


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"learned_{}"', ParameterNames(template="learned_{}")),
        ('["w", "b"]', ParameterNames(names=("w", "b"))),
        (
            '{ "*.weight" = "w_{}", "fc.bias" = "end" }',
            ParameterNames(patterns={"*.weight": "w_{}", "fc.bias": "end"}),
        ),
    ],
)
def test_each_form_sets_the_names_of_the_weights(
    text: str, names: ParameterNames, tmp_path: Path
) -> None:
    assert load_model(tmp_path, f"parameters = {text}\n").parameters == names


def test_by_default_weights_keep_their_names(tmp_path: Path) -> None:
    assert load_model(tmp_path).parameters is None
