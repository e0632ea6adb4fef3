"""Each setting of a cell with the file and line of its origin."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from exporter.commands.explain import explain, explain_cell
from exporter.manifest import load_layers
from exporter.manifest.syntax.values import format_toml_value
from tests.unit.manifest.projects import ENTRY, make_project

SETTINGS = """[tool.exporter.defaults]
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
tolerance = {{ atol = 0.5 }}
[models.child]
extends = "base"
seed = 4
"""


def project(root: Path) -> Path:
    return make_project(root, {"pyproject.toml": SETTINGS, "manifests/net.toml": MANIFEST})


def rows(root: Path, model: str, opset: int, device: str) -> dict[str, tuple[str, str]]:
    """Return the value and the origin of each setting of a cell of a project."""
    loaded = load_layers(root)
    settings = explain_cell(loaded.layers[model], loaded.manifest.find_model(model), opset, device)
    return {row.key: (row.value, row.origin) for row in settings}


def test_each_setting_has_the_line_of_its_layer(tmp_path: Path) -> None:
    settings = rows(project(tmp_path), "child", 17, "cpu")
    assert settings["seed"] == ("4", "manifests/net.toml:26")
    assert settings["opsets"] == ('"9..21"', "manifests/net.toml:9")
    assert settings["tolerance"] == ("{ noise = 9 }", "pyproject.toml:2")
    assert settings["devices"] == ('["cpu", "reference"]', "pyproject.toml:3")
    assert settings["options.verbose"] == ("true", "manifests/net.toml:4")
    assert settings["init.width"] == ("64", "manifests/net.toml:11")
    assert settings["axes.batch.max"] == ("8", "manifests/net.toml:12")
    assert settings["axes.batch.example"] == ("3", "chosen")
    assert settings["mode"] == ('"eval"', "built-in default")
    assert settings["timeout"] == ("600.0", "built-in default")
    assert "ir_version" not in settings
    assert "description" not in settings


def test_the_keys_of_an_axis_are_in_the_order_of_their_declaration(tmp_path: Path) -> None:
    table = "axes.batch = { multiple_of = 2, max = 8, min = 2, example = 4 }"
    text = MANIFEST.replace("axes.batch.max = 8", table)
    root = make_project(tmp_path, {"pyproject.toml": SETTINGS, "manifests/net.toml": text})
    keys = [key for key in rows(root, "child", 17, "cpu") if key.startswith("axes.")]
    assert keys == [f"axes.batch.{name}" for name in ("example", "min", "max", "multiple_of")]


def test_matching_overrides_win(tmp_path: Path) -> None:
    settings = rows(project(tmp_path), "child", 9, "reference")
    assert settings["ir_version"] == ("7", "manifests/net.toml:15")
    assert settings["options.do_constant_folding"] == ("false", "manifests/net.toml:16")
    assert settings["tolerance"] == ("{ atol = 0.5 }", "manifests/net.toml:23")
    settings = rows(tmp_path, "base", 12, "cpu")
    assert settings["ir_version"] == ("6", "manifests/net.toml:19")
    assert settings["exporter"] == ('"torchscript"', "manifests/net.toml:20")
    assert settings["capture"] == ("the exporter's default", "manifests/net.toml:20")
    assert settings["tolerance"] == ("{ noise = 9 }", "pyproject.toml:2")


def test_by_default_the_tolerance_is_measured(tmp_path: Path) -> None:
    make_project(tmp_path, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    settings = rows(tmp_path, "net", 9, "cpu")
    assert settings["tolerance"][0].startswith("measured")
    assert settings["devices"][0] == '["cpu"]'


def test_the_command_shows_one_cell(tmp_path: Path) -> None:
    root = str(project(tmp_path))
    result = CliRunner().invoke(explain, ["child/12/cpu", "--root", root])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("child/12/cpu: torchscript trace, because the manifest selects")
    assert [line.split() for line in lines if line.startswith("seed")] == [
        ["seed", "manifests/net.toml:26", "4"]
    ]
    several = CliRunner().invoke(explain, ["child", "--root", root])
    assert "matches 26 cells; name one of them: child/" in str(several.exception)
    assert str(several.exception).endswith(", ...")


def test_values_have_toml_notation() -> None:
    value = {"a b": [1, 2.5, True, "x\n"], "c": {}, "d": 1.0}
    assert format_toml_value(value) == '{ "a b" = [1, 2.5, true, "x\\n"], c = {}, d = 1.0 }'


def test_derived_axis_has_its_rule_and_its_computed_example(tmp_path: Path) -> None:
    entry = ENTRY.replace('"batch", 3]', '"batch", "half"]')
    text = f"format = 1\n[models.net]\n{entry}"
    text += 'axes.half = { of = "batch", stride = 2 }\naxes.batch.min = 2\n'
    settings = rows(make_project(tmp_path, {"manifests/net.toml": text}), "net", 17, "cpu")
    assert settings["axes.half.of"] == ('"batch"', "manifests/net.toml:7")
    assert settings["axes.batch.example"] == ("5", "chosen")
    assert settings["axes.half.example"] == ("2", "computed: batch//2")


def test_a_chain_has_no_inherited_keys_of_its_links(tmp_path: Path) -> None:
    text = """format = 1
[defaults]
exporter = "torchscript"
opsets = [17]
metadata = { team = "vision" }
options.verbose = true
source = "torch.nn:ReLU"
inputs = [{ name = "x", shape = [1] }]
outputs = [{ name = "y", shape = [1] }]
[models.first]
[models.second]
[models.whole]
chain = ["first", "second"]
feeds."second.x" = "first.y"
"""
    root = make_project(tmp_path, {"manifests/net.toml": text})
    of_link, of_chain = (rows(root, name, 17, "cpu") for name in ("first", "whole"))
    assert {*of_link} - {*of_chain} == {
        "exporter", "capture", "metadata", "options.verbose",
    }  # fmt: skip
    assert {*of_chain} - {*of_link} == {"chain", "feeds"}
