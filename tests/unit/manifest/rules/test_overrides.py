"""Overrides: the selected cells, the precedence, and the effect on plan and fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.fingerprint import compute_fingerprint
from exporter.manifest.schema.entry import OverrideTable, Settings
from exporter.planning.plan import choose_route
from tests.unit.manifest.projects import ENTRY, load, load_model

OVERRIDES = """
tolerance = { noise = 5 }
ir_version = 9
devices = ["cpu", "reference"]
options.verbose = true

[[models.net.overrides]]
opset = "<13"
ir_version = 7
options = { do_constant_folding = false }

[[models.net.overrides]]
opset = [12, 18]
exporter = "torchscript"
options = { verbose = false }

[[models.net.overrides]]
device = "ref*"
tolerance = { atol = 1e-3 }
"""


def test_a_key_applies_to_the_cells_of_its_conditions(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    assert [model.resolve_cell(opset).ir_version for opset in (9, 12, 13, 18)] == [7, 7, 9, 9]
    assert model.resolve_cell(9).options == {"verbose": True, "do_constant_folding": False}
    assert model.resolve_cell(12).options == {"verbose": False, "do_constant_folding": False}
    assert model.resolve_cell(13).options == {"verbose": True}


def test_the_plan_uses_the_exporter_of_an_override(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    assert [choose_route(model, opset).exporter for opset in (17, 18, 19)] == [
        "torchscript",
        "torchscript",
        "dynamo",
    ]


def test_tolerances_depend_on_the_device(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    for cell in (model.resolve_cell(13), model.resolve_cell(13, "cpu")):
        assert cell.tolerance.noise == 5
    cell = model.resolve_cell(13, "reference")
    assert (cell.tolerance.atol, cell.tolerance.noise) == (1e-3, None)
    # A second application changes nothing.
    assert cell.resolve_cell(13, "reference") == cell


def test_another_exporter_resets_the_capture(tmp_path: Path) -> None:
    text = 'capture = "strict"\n[[models.net.overrides]]\nopset = "<18"\nexporter = "torchscript"\n'
    model = load_model(tmp_path, text, ENTRY.replace("9..21", "17..19"))
    assert [choose_route(model, opset).capture for opset in (17, 18)] == ["trace", "strict"]
    text += '[[models.net.overrides]]\nopset = 17\ncapture = "script"\n'
    model = load_model(tmp_path, text, ENTRY.replace("9..21", "17..19"))
    assert [choose_route(model, opset).capture for opset in (17, 18)] == ["script", "strict"]


def test_an_entry_inherits_the_overrides_or_has_its_own(tmp_path: Path) -> None:
    text = (
        f"[models.a]\n{ENTRY}[[models.a.overrides]]\nopset = 9\nir_version = 3\n"
        "[models.b]\nextends = 'a'\n"
        "[models.c]\nextends = 'a'\n[[models.c.overrides]]\nopset = 10\nir_version = 4\n"
    )
    manifest = load(tmp_path, text)
    versions = [
        [manifest.find_model(id).resolve_cell(opset).ir_version for opset in (9, 10)]
        for id in ("a", "b", "c")
    ]
    assert versions == [[3, None], [3, None], [None, 4]]


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("ir_version = 8", "entry"),
        ("options = { verbose = true }", "entry"),
        ("tolerance = { atol = 1e-3 }", "checks"),
    ],
)
def test_a_key_of_the_checks_does_not_change_the_entry_part(
    override: str, part: str, tmp_path: Path
) -> None:
    before = compute_fingerprint(load_model(tmp_path))
    after = compute_fingerprint(
        load_model(tmp_path, f"[[models.net.overrides]]\nopset = 9\n{override}\n")
    )
    assert {key for key in before if before[key] != after[key]} == {part}


def test_every_key_of_an_entry_is_valid_or_has_an_advice() -> None:
    known = {*OverrideTable.model_fields, *OverrideTable.misplaced_keys, "overrides"}
    assert set(Settings.model_fields) - known == set()
