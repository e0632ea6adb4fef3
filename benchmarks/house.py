"""Figures of the package: its size, its keys and commands, and what runs for one model.

`python -m benchmarks.house` prints them. No test compares them with a limit, because code that is
written for a number is hard to read. import-linter finds cycles and imports of a higher layer
(`nox -s layers`).

`python -m benchmarks.house --run` also exports a model with one layer and prints what runs from
the command to the table: the functions that any process of the command calls, also workers, with
all of their lines, and the modules that contain them. An import calls no function of a module.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import click
import tomli

from benchmarks.documents import SECTIONS, get_owner
from exporter.cli.entry_point import exporter

PACKAGE = Path(__file__).parents[1] / "exporter"
#: Identifiers whose modules are counted.
IDENTIFIERS = ("rollout", "metric", "passes", "toolchain")


def list_modules() -> dict[str, str]:
    """Return the source of each module by its name, such as `gate.finding`."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths)
    names = (name.removesuffix("__init__").rstrip("/").replace("/", ".") for name in names)
    return {name: path.read_text("utf-8") for name, path in zip(names, paths, strict=True)}


def list_keys() -> set[tuple[type | None, str]]:
    """Return each key of the reference with the class that declares it."""
    return {(get_owner(table, key), key) for _, table in SECTIONS for key in table.model_fields}


def list_used_keys() -> set[str]:
    """Return the names of all keys in the TOML files of the repository, except test data."""
    names, root = set[str](), PACKAGE.parent
    folders = ("manifests", "docs", "benchmarks", "tests/features", "tests/traps")
    files = [path for folder in folders for path in (root / folder).rglob("*.toml")]
    values: list[object] = [tomli.loads(path.read_text("utf-8")) for path in files]
    values.append(tomli.loads((root / "pyproject.toml").read_text("utf-8")).get("tool"))
    while values:
        value = values.pop()
        if isinstance(value, dict):
            names |= value.keys()
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
    return names


def measure() -> dict[str, int]:
    """Return the figures by their names."""
    modules, used_keys = list_modules(), list_used_keys()
    uses = defaultdict[str, set[str]](set)
    for name, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            words = {getattr(node, key, None) for key in ("id", "attr", "arg", "name", "value")}
            for word in words & {*IDENTIFIERS}:
                uses[word].add(name)
    return {
        "modules": len(modules),
        "lines of the package": sum(len(source.splitlines()) for source in modules.values()),
        "keys": len(list_keys()),
        "keys in no TOML file": sum(key not in used_keys for _, key in list_keys()),
        "commands": len(exporter.list_commands(click.Context(exporter))),
        **{f"modules with `{word}`": len(uses[word]) for word in IDENTIFIERS},
    }


#: Python imports it in each process. Forks append to the same file.
_RECORDER = """import os, sys
known, file = set(), os.open({file!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def record(frame, event, argument):
    code = frame.f_code
    if event == "call" and code not in known:
        known.add(code)
        if code.co_filename.startswith({package!r}) and code.co_flags & 1:  # no body of a class
            last = max(line or 0 for *_, line in code.co_lines())
            os.write(file, f"{{code.co_filename}}:{{code.co_firstlineno}}:{{last}}\\n".encode())
sys.setprofile(record)
"""
_MODEL = "from torch.nn import Linear\n\n\ndef build():\n    return Linear(3, 2)\n"
_ENTRY = """format = 1
[models.net]
source = "net.py:build"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 2] }]
opsets = 18
"""


def measure_run(root: Path) -> dict[str, int]:
    """Export one model in an empty folder, and count the functions that run."""
    file = root / "functions.txt"
    recorder = _RECORDER.format(file=str(file), package=f"{PACKAGE}/")
    texts = {
        "pyproject.toml": "[tool.exporter]\n",
        "manifests/net.py": _MODEL,
        "manifests/net.toml": _ENTRY,
        "recorder/sitecustomize.py": recorder,
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, "utf-8")
    command = [sys.executable, "-m", "exporter", "export", "--no-store", "--root", str(root)]
    variables = {**os.environ, "PYTHONPATH": str(root / "recorder")}
    subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
    lines = defaultdict[str, set[int]](set)
    for line in file.read_text("utf-8").splitlines():
        name, first, last = line.rsplit(":", 2)
        lines[name].update(range(int(first), int(last) + 1))
    return {
        "modules that run for one model": len(lines),
        "lines of the functions that run": sum(map(len, lines.values())),
    }


if __name__ == "__main__":
    figures = measure()
    if "--run" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            figures |= measure_run(Path(folder))
    for name, value in figures.items():
        print(f"{value:7,}  {name}")
