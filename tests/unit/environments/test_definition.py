"""The key of an environment: equal for equal packages, different for every difference."""

from __future__ import annotations

import pytest

from exporter.environments.definition import EnvironmentDefinition

BASE = EnvironmentDefinition(requirements=("onnxruntime==1.17.3", "numpy<2"))


def test_the_order_of_requirements_does_not_change_the_key() -> None:
    reordered = EnvironmentDefinition(requirements=tuple(reversed(BASE.requirements)))
    assert reordered.key == BASE.key


@pytest.mark.parametrize(
    "change",
    [
        {"requirements": ("onnxruntime==1.17.3",)},
        {"requirements": ("onnxruntime==1.17.1", "numpy<2")},
        {"python": "python3.12"},
        {"adds_to_current": True},
    ],
    ids=["fewer", "version", "python", "adds"],
)
def test_a_change_changes_the_key(change: dict[str, object]) -> None:
    assert BASE.model_copy(update=change).key != BASE.key
