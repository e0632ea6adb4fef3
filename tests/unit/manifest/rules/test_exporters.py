"""The exporter of each opset, and its captures and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest.rules.sources import EXPORTER_OPTIONS, list_exporters
from exporter.manifest.schema.entry import OptionsTable, Settings
from tests.unit.manifest.projects import ENTRY, load_model


def _load(root: Path, opsets: str, keys: str) -> object:
    return load_model(root, keys, ENTRY.replace('"9..21"', opsets))


@pytest.mark.parametrize(
    ("opsets", "keys"),
    [
        ('"7..28"', ""),
        ('"7..20"', "exporter = 'torchscript'"),
        ('"7..28"', "exporter = 'dynamo'"),
        ('"7..28"', "exporter = 'dynamo'\ncapture = 'strict'"),
        ('"7..20"', "capture = 'trace'"),
        ('"7..20"', "capture = 'script'"),
        ('"18..28"', "capture = 'export'"),
        ('"18..28"', "capture = 'strict'"),
        ('"7..20"', "exporter = 'torchscript'\ncapture = 'script'"),
        ('"17..18"', "options = { optimize = false, do_constant_folding = false }"),
        ('"9..17"', "options = { do_constant_folding = false }"),
        ("18", "options = { optimize = false, keep_initializers_as_inputs = true }"),
    ],
)
def test_valid_combinations(tmp_path: Path, opsets: str, keys: str) -> None:
    assert _load(tmp_path, opsets, keys)


@pytest.mark.parametrize(
    ("opset", "capture", "exporter"), [(21, "trace", "TorchScript"), (17, "export", "dynamo")]
)
def test_a_capture_that_selects_the_wrong_exporter(
    tmp_path: Path, opset: int, capture: str, exporter: str
) -> None:
    message = f"remove capture = '{capture}', which selects {exporter} for all opsets"
    with pytest.raises(ExporterError, match=message):
        _load(tmp_path, str(opset), f"capture = '{capture}'")


def test_auto_selects_dynamo_from_opset_18() -> None:
    def list_for(*opsets: int) -> set[str]:
        return set(list_exporters(Settings.model_validate({"opsets": list(opsets)})))

    assert list_for(7, 17) == {"torchscript"}
    assert list_for(18, 26) == {"dynamo"}
    assert list_for(17, 18) == {"dynamo", "torchscript"}


def test_every_option_has_an_exporter() -> None:
    assert EXPORTER_OPTIONS["dynamo"] | EXPORTER_OPTIONS["torchscript"] == set(
        OptionsTable.model_fields
    )
    for name, field in OptionsTable.model_fields.items():
        assert field.default is not None or field.default_factory, name
