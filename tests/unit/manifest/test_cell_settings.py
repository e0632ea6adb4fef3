"""Each setting of a cell with the file and line that it comes from."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from exporter.cli.commands.explain import command
from exporter.manifest import explain_cell, load_layers
from exporter.manifest.cell_settings import format_toml_value
from tests.unit.manifest.projects import ENTRY, make_project

SETTINGS = """[tool.exporter]
tolerance = { noise = 9 }
devices = ["cpu", "reference"]
"""
MANIFEST = f"""format = 1
[defaults]
seed = 3
options.verbose = true
[models.base]
{ENTRY}
init = {{ width = 64 }}
axes.batch.max = 8
[[models.base.overrides]]
opset = "<13"
ir_version = 7
options = {{ do_constant_folding = false }}
[[models.base.overrides]]
opset = 12
ir_version = 6
exporter = "torchscript"
[[models.base.overrides]]
device = "ref*"
outputs = [{{ name = "y", tolerance = {{ atol = 0.5 }} }}]
[models.child]
extends = "base"
seed = 4
"""


def project(root: Path) -> Path:
    return make_project(root, {"pyproject.toml": SETTINGS, "manifests/net.toml": MANIFEST})


def rows(root: Path, model: str, opset: int, device: str) -> dict[str, tuple[str, str]]:
    loaded = load_layers(project(root))
    found = explain_cell(loaded.layers[model], loaded.manifest.find_model(model), opset, device)
    return {row.key: (row.value, row.origin) for row in found}


def test_each_layer_is_named_with_its_line(tmp_path: Path) -> None:
    found = rows(tmp_path, "child", 17, "cpu")
    assert found["seed"] == ("4", "manifests/net.toml:26")
    assert found["opsets"] == ('"9..21"', "manifests/net.toml:9")
    assert found["tolerance"] == ("{ noise = 9 }", "pyproject.toml:2")
    assert found["devices"] == ('["cpu", "reference"]', "pyproject.toml:3")
    assert found["options.verbose"] == ("true", "manifests/net.toml:4")
    assert found["init.width"] == ("64", "manifests/net.toml:11")
    assert found["axes.batch"] == ("{ max = 8 }", "manifests/net.toml:12")
    assert found["axes.batch.example"] == ("3", "chosen")
    assert found["mode"] == ('"eval"', "built-in default")
    assert found["timeout"] == ("600.0", "built-in default")
    assert "ir_version" not in found
    assert "description" not in found


def test_overrides_that_mean_the_cell_win(tmp_path: Path) -> None:
    found = rows(tmp_path, "child", 9, "reference")
    assert found["ir_version"] == ("7", "manifests/net.toml:15")
    assert found["options.do_constant_folding"] == ("false", "manifests/net.toml:16")
    assert found["outputs.y.tolerance"] == ("{ atol = 0.5 }", "manifests/net.toml:23")
    found = rows(tmp_path, "base", 12, "cpu")
    assert found["ir_version"] == ("6", "manifests/net.toml:19")
    assert found["exporter"] == ('"torchscript"', "manifests/net.toml:20")
    assert found["capture"] == ("the exporter's own", "manifests/net.toml:20")
    assert "outputs.y.tolerance" not in found


def test_what_nobody_said_is_measured(tmp_path: Path) -> None:
    make_project(tmp_path, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    loaded = load_layers(tmp_path)
    found = {
        row.key: row
        for row in explain_cell(loaded.layers["net"], loaded.manifest.find_model("net"), 9, "cpu")
    }
    assert found["tolerance"].value.startswith("measured")
    assert found["devices"].value == '["cpu"]'


def test_the_command_shows_one_cell(tmp_path: Path) -> None:
    root = str(project(tmp_path))
    shown = CliRunner().invoke(command, ["child/12/cpu", "--root", root])
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[0].startswith("child/12/cpu: torchscript trace, because the manifest asks")
    assert [line.split() for line in lines if line.startswith("seed")] == [
        ["seed", "manifests/net.toml:26", "4"]
    ]
    several = CliRunner().invoke(command, ["child", "--root", root])
    assert "means 26 cells; name one of them: child/" in str(several.exception)
    assert str(several.exception).endswith(", ...")


def test_values_are_spelled_as_toml_spells_them() -> None:
    value = {"a b": [1, 2.5, True, "x\n"], "c": {}, "d": 1.0}
    assert format_toml_value(value) == '{ "a b" = [1, 2.5, true, "x\\n"], c = {}, d = 1.0 }'
