"""Names of weights in their three forms."""

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
def test_each_form_says_what_weights_are_called(
    text: str, names: ParameterNames, tmp_path: Path
) -> None:
    assert load_model(tmp_path, f"parameters = {text}\n").parameters == names


def test_without_it_weights_keep_their_names(tmp_path: Path) -> None:
    assert load_model(tmp_path).parameters is None
