"""Overrides: which cells they mean, what wins, and what they change of plan and fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.fingerprint import compute_fingerprint
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.overrides import OverrideTable
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
outputs = [{ name = "y", tolerance = { rtol = 1e-2 } }]
"""


def test_a_key_holds_for_the_cells_that_the_conditions_mean(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    assert [model.resolve_cell(opset).ir_version for opset in (9, 12, 13, 18)] == [7, 7, 9, 9]
    assert model.resolve_cell(9).options == {"verbose": True, "do_constant_folding": False}
    assert model.resolve_cell(12).options == {"verbose": False, "do_constant_folding": False}
    assert model.resolve_cell(13).options == {"verbose": True}


def test_the_exporter_of_an_opset_is_the_plans(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    assert [choose_route(model, opset).exporter for opset in (17, 18, 19)] == [
        "torchscript",
        "torchscript",
        "dynamo",
    ]


def test_tolerances_depend_on_the_device(tmp_path: Path) -> None:
    model = load_model(tmp_path, OVERRIDES)
    for cell in (model.resolve_cell(13), model.resolve_cell(13, "cpu")):
        assert (cell.tolerance.noise, cell.outputs[0].tolerance) == (5, None)
    there = model.resolve_cell(13, "reference")
    assert (there.tolerance.atol, there.tolerance.noise) == (1e-3, None)
    assert there.outputs[0].tolerance is not None
    assert (there.outputs[0].tolerance.rtol, there.outputs[0].name) == (1e-2, "y")
    # Applied twice, it says the same.
    assert there.resolve_cell(13, "reference") == there


def test_another_exporter_brings_its_own_capture(tmp_path: Path) -> None:
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
    found = [
        [manifest.find_model(id).resolve_cell(opset).ir_version for opset in (9, 10)] for id in ("a", "b", "c")
    ]
    assert found == [[3, None], [3, None], [None, 4]]


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("ir_version = 8", "entry"),
        ("options = { verbose = true }", "entry"),
        ("tolerance = { atol = 1e-3 }", "checks"),
        ("outputs = [{ name = 'y', tolerance = { atol = 1e-3 } }]", "checks"),
    ],
)
def test_what_only_the_checks_read_keeps_the_file(override: str, part: str, tmp_path: Path) -> None:
    before = compute_fingerprint(load_model(tmp_path))
    after = compute_fingerprint(load_model(tmp_path, f"[[models.net.overrides]]\nopset = 9\n{override}\n"))
    assert {key for key in before if before[key] != after[key]} == {part}


def test_every_key_of_an_entry_is_taken_or_said_to_belong_elsewhere() -> None:
    known = {*OverrideTable.model_fields, *OverrideTable.misplaced_keys, "overrides"}
    assert set(Settings.model_fields) - known == set()
