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


@pytest.mark.parametrize(
    ("requirement", "is_pinned"),
    [
        ("onnx==1.21.0", True),
        ("onnx[reference] == 1.21.0", True),
        ("onnx==1.*", False),
        ("onnx>=1.21", False),
        ("onnx", False),
        ("onnx==1.21.0; python_version > '3'", False),
        ("./onnx.whl", False),
    ],
)
def test_only_one_exact_version_is_pinned(requirement: str, is_pinned: bool) -> None:
    assert EnvironmentDefinition(requirements=("torch==2.13.0", requirement)).is_pinned is is_pinned


def test_an_addition_to_another_environment_has_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addition = BASE.model_copy(update={"adds_to_current": True})
    keys = {BASE.key, addition.key}
    monkeypatch.setattr("sys.prefix", "/another")
    assert addition.key not in keys
    assert BASE.key in keys
