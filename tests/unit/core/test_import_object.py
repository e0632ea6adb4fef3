"""The current source of a file is loaded, even if there is bytecode of an older one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.core.import_object import PluginError, load_plugin
from tests.integration.project import ROOT, run_python

LOAD = """
import sys
from pathlib import Path
from exporter.core.import_object import load_attribute
print(load_attribute(sys.argv[1], Path(sys.argv[2]))())
"""
NET = """
def forward():
    from pack import late
    return ({value}, late.VALUE)
"""
#: A module that loads another one by its path.
PLACED = """
from importlib import util
specification = util.spec_from_file_location("other", __file__.replace("placed", "net"))
net = util.module_from_spec(specification)
specification.loader.exec_module(net)
forward = net.forward
"""


def load(folder: Path, source: str) -> str:
    """Run in a separate Python, which writes bytecode by default."""
    command = ("-c", LOAD, source, str(folder))
    return run_python(ROOT, *command, PYTHONDONTWRITEBYTECODE="").stdout.strip()


def write_source(folder: Path, value: int) -> None:
    """Write files of equal size and time with different content."""
    (folder / "pack").mkdir(exist_ok=True)
    texts = {
        "net.py": NET.format(value=value),
        "placed.py": PLACED,
        "no-name.py": NET.format(value=value),
        "pack/__init__.py": "",
        "pack/late.py": f"VALUE = {value}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (10**9, 10**9))


@pytest.mark.parametrize(
    "source", ["net.py:forward", "net:forward", "no-name.py:forward", "placed.py:forward"]
)
def test_an_edit_within_a_second_is_seen(tmp_path: Path, source: str) -> None:
    write_source(tmp_path, 1)
    assert load(tmp_path, source) == "(1, 1)"
    # Another program may have left bytecode.
    code = "import net, pack.late"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    assert list(tmp_path.rglob("*.pyc"))
    write_source(tmp_path, 2)
    assert load(tmp_path, source) == "(2, 2)"


@pytest.mark.parametrize("other", ["models.py", "models/__init__.py", "models/deep/__init__.py"])
@pytest.mark.parametrize("name", ["models/net.py", "models/deep/net.py"])
def test_a_file_is_loaded_beside_a_module_of_its_folders_name(
    tmp_path: Path, name: str, other: str
) -> None:
    """A folder `manifests/models` is not the `models` of the project."""
    for path, text in {name: "def build(): return 'own'\n", f"root/{other}": "VALUE = 1\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'root')!r})\n" + LOAD.replace(
        "print(", "sys.path.append(sys.argv[2])\nprint("
    )
    command = ("-c", script, f"{name}:build", str(tmp_path))
    assert run_python(ROOT, *command).stdout.strip() == "own"
    missing = ("-c", script, f"{name.replace('net', 'absent')}:build", str(tmp_path))
    assert "No" in run_python(ROOT, *missing).stderr


def test_no_bytecode_is_left_in_the_project(tmp_path: Path) -> None:
    write_source(tmp_path, 1)
    assert load(tmp_path, "net.py:forward") == "(1, 1)"
    assert list(tmp_path.rglob("*.pyc")) == []


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), ImportError("no")])
def test_a_plugin_that_ends_the_process_is_an_error(error: BaseException) -> None:
    class Plugin:
        name, value, dist = "own", "own:command", None

        def load(self) -> object:
            raise error

    with pytest.raises(PluginError, match=rf"cannot import own:command: {type(error).__name__}"):
        load_plugin(Plugin())  # type: ignore[arg-type]


def test_packages_of_another_environment_have_bytecode(tmp_path: Path) -> None:
    """The code of torch is thousands of files: a worker neither compiles nor reads their blocks."""
    shared = tmp_path / "shared/lib/site-packages"
    for folder, name in ((shared, "installed"), (tmp_path / "own", "own")):
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text("")
    code = (
        "from exporter.core.import_object import LISTENERS, ignore_project_bytecode;"
        "ignore_project_bytecode();"
        "LISTENERS.append(lambda path, *_: print(path));"
        "import installed, own"
    )
    ran = run_python(tmp_path, "-c", code, PYTHONPATH=f"{shared}:{tmp_path / 'own'}:{ROOT}")
    assert ran.stdout.split() == [str(tmp_path / "own/own.py")]
