"""Figures of the package: the border to optional things, and the size of the way to a verdict.

`python -m benchmarks.house` prints them. The way goes from a manifest to the gate. It should not
import optional things. The contract `layers` in pyproject.toml allows no import of
`exporter.plugins`, so the way calls `import_plugin` with the name in a table; OPTIONAL has the
optional modules in other packages. A check, a step of the gate and the adapter of torch
(`torch_private`) are parts of the way: the gate or the verdict would miss them.

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
from collections.abc import Iterator
from pathlib import Path

import click
import tomli

from benchmarks.documents import SECTIONS, get_owner
from exporter.cli.entry_point import exporter

PACKAGE = Path(__file__).parents[1] / "exporter"
#: Optional modules in packages of the way.
OPTIONAL = (
    "runtimes.drivers.__main__",
    "runtimes.drivers.backend_driver",
    "runtimes.drivers.openvino_driver",
    "runtimes.drivers.server",
    "runtimes.drivers.tract_driver",
)
#: Modules above the way: for the tests of users, and the interface of commands.
ABOVE = ("pytest_plugin", "testing", "api.finished_file", "cli.plugin", "__main__")
#: Identifiers whose modules are counted.
IDENTIFIERS = ("rollout", "metric", "passes", "toolchain")


def list_modules() -> dict[str, str]:
    """Return the source of each module by its name, such as `gate.finding`."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths)
    names = (name.removesuffix("__init__").rstrip("/").replace("/", ".") for name in names)
    return {name: path.read_text("utf-8") for name, path in zip(names, paths, strict=True)}


def is_on_the_way(module: str) -> bool:
    """Return whether a module is on the way from a manifest to the gate."""
    return module.partition(".")[0] != "plugins" and module not in (*OPTIONAL, *ABOVE)


def list_crossings() -> set[tuple[str, str]]:
    """Return each module on the way with an optional module that it imports, also lazily."""
    modules = list_modules()
    return {
        (module, imported)
        for module, source in modules.items()
        if is_on_the_way(module)
        for imported in _list_imports(source, modules.keys())
        if not is_on_the_way(imported)
    }


def _list_imports(source: str, known: object) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exporter"):
            base = (node.module or "").removeprefix("exporter").lstrip(".")
            inner = [f"{base}.{each.name}".lstrip(".") for each in node.names]
            yield from (name if name in known else base for name in inner)  # type: ignore[operator]


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
    way = {name: source for name, source in modules.items() if is_on_the_way(name)}
    uses = defaultdict[str, set[str]](set)
    for name, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            words = {getattr(node, key, None) for key in ("id", "attr", "arg", "name", "value")}
            for word in words & {*IDENTIFIERS}:
                uses[word].add(name)
    return {
        "statements from the way to optional things": len(list_crossings()),
        "modules with such a statement": len({module for module, _ in list_crossings()}),
        "modules that use the table of plugins": sum(
            "import_plugin" in each for each in way.values()
        ),
        "lines of the way": sum(len(source.splitlines()) for source in way.values()),
        "modules of the way": len(way),
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
