"""The rules of keys that most entries do not have: a plugin has them for each level of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from tests.unit.manifest.projects import make_project

KEYS = {
    "source": '"net.py:Net"',
    "inputs": '[{ name = "x", shape = ["batch", 3] }]',
    "outputs": '[{ name = "y", shape = ["batch", 3] }]',
    "opsets": "18",
}
#: Plugin, lines with a key that needs it, and the problem that only the plugin reports.
ROWS = [
    ("forward", 'inputs = [{ shape = ["b", 3], at = "args[1]" }]', "position 1 has no parameter"),
    ("derived_axes", "axes = { batch = { sum = [3, 4] } }", "at least one axis"),
    ("derived_axes", "axes = { batch = { stride = 2 } }", "needs `of`"),
    ("cases", 'cases = [{ name = "same" }]', "has the inputs of the model"),
    (
        "compare",
        'outputs = [{ name = "y", shape = [3], dtype = "int64", compare = { cosine = 0.9 } }]',
        "does not suit int64",
    ),
    (
        "compare",
        'outputs = [{ name = "y", shape = ["batch"], masked_by = "z" }]',
        "no input has this name",
    ),
    (
        "repeat",
        'inputs = [{ name = "x", shape = ["batch"], repeat = { i = 2 } }]',
        "is the same for every copy",
    ),
    (
        "repeat",
        'inputs = [{ name = "x", shape = ["batch"], at = "args[{i}]" }]',
        "needs `repeat = { i = COUNT }`",
    ),
    (
        "custom_op_rules",
        'custom_ops = [{ name = "a.b", reference = "net.py:Net" }]',
        "an entry with only kernels",
    ),
    ("passes", 'passes = ["net.py:function"]', 'does not define "function"'),
    ("artifact", 'artifact = "net.bin"', "expected a file with the suffix .onnx"),
    ("saved_source", 'source = "net.pt2"\nmode = "train"', "has the mode of its capture"),
    ("saved_source", 'source = "net.pt"\ninit = { depth = 3 }', "takes no init arguments"),
    ("generate", "generate = { steps = 4 }", 'is for exporter = "transformers"'),
    ("rollout", "tokens = 0.5", "no loop selects tokens"),
    ("rollout", 'rollout = { steps = 4, feeds = { z = "x" } }', "no output has the name"),
    ("call", 'inputs = [{ name = "x", shape = [3], scalar = true }]', "has the shape []"),
    ("call", 'inputs = [{ name = "x", shape = [3], optional = true }]', "cannot write optional"),
    ("call", 'inputs = [{ name = "x", shape = [3], at = "args[1]" }]', "'args[0]' is missing"),
    ("call", 'constants = [{ at = "args[2]" }]', "'args[1]' is missing"),
    ("call", 'containers = [{ at = "args[0]", type = "set" }]', 'expected "list"'),
    ("options", "options = { optimize = true, export_params = false }", "computes new weights"),
    (
        "options",
        "overrides = [{ opset = 18, options = { optimize = true, export_params = false } }]",
        "computes new weights",
    ),
    ("overrides", "overrides = [{ opset = 18 }]", "changes nothing"),
]
LEVELS = ("entry", "parent", "file", "project")


def load(root: Path, lines: str, level: str) -> str:
    """Return the problems of an entry that gets the lines from one level of settings."""
    keys = {line.partition(" =")[0] for line in lines.split("\n")}
    entry = "\n".join(f"{key} = {value}" for key, value in KEYS.items() if key not in keys)
    texts = {each: lines if each == level else "" for each in LEVELS}
    entries = f"[models.net]\n{entry}\n{texts['entry']}\n"
    if level == "parent":
        entries = f'[models.base]\n{entry}\n{lines}\n[models.net]\nextends = "base"\n'
    files = {
        "pyproject.toml": f"[tool.exporter.defaults]\n{texts['project']}\n",
        "manifests/net.toml": f"format = 1\n[defaults]\n{texts['file']}\n{entries}",
        "manifests/net.py": "class Net:\n    def forward(self, x): ...\n",
        "manifests/net.interface.toml": "[decoder]\n",
        "manifests/net.pt2": "",
        "manifests/net.pt": "",
        "net.pt2": "",
        "net.pt": "",
        "net.py": "class Net: ...\n",
    }
    with pytest.raises(ExporterError) as raised:
        load_project(make_project(root, files))
    return str(raised.value)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("plugin", "lines", "problem"), ROWS)
def test_the_rules_of_a_key_run_at_each_level(
    plugin: str, lines: str, problem: str, level: str, tmp_path: Path
) -> None:
    assert problem in load(tmp_path, lines, level), plugin


TABLES = [
    ("devices", '[tool.exporter.devices.gpu]\nruntime = "onnxruntime"', "needs `providers`"),
    (
        "devices",
        '[tool.exporter.environments."A b"]\nrequirements = ["numpy"]',
        "expected a name of a-z",
    ),
    (
        "devices",
        '[tool.exporter.toolchains.current]\nrequirements = ["torch"]',
        "the project's own packages",
    ),
    ("gate", '[tool.exporter.gate]\nblock = ["fixed"]\nwarn = ["fixed"]', "is also in `block`"),
    ("gate", '[tool.exporter.gate.models."a*"]\nwarn = ["fixed"]', "no model matches"),
]


@pytest.mark.parametrize(("plugin", "table", "problem"), TABLES)
def test_the_rules_of_a_table_of_the_project_run(
    plugin: str, table: str, problem: str, tmp_path: Path
) -> None:
    root = make_project(tmp_path, {"pyproject.toml": table, "manifests/net.toml": "format = 1\n"})
    with pytest.raises(ExporterError, match=problem):
        load_project(root)
