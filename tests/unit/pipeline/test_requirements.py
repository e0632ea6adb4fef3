from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.pipeline import require_packages


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name in missing else ModuleSpec(name, None)

    monkeypatch.setattr("exporter.pipeline.requirements.find_spec", find_spec)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("torch",), "torch is not installed here: the command needs `pip install '"),
        (("torch", "onnxscript"), "torch, onnxscript are not installed here"),
    ],
)
def test_missing_packages_are_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    without(monkeypatch, *missing)
    with pytest.raises(ExporterError, match=message) as caught:
        require_packages()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_complete_environment_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    require_packages()
