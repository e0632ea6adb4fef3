"""The parameters of `forward`, read from Python files without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest.rules.python_code import UnreadableForward, hash_code, read_forward

_OTHER = """
import nets.cycle
class Base(Module):
    def forward(self, tokens, mask=None): ...
class Far:
    class Inner: ...
"""
_NET = """
from . import other
from .other import Base as Renamed
from nets.other import *
import nets.other as others
from nets import missing

class Net(Module):
    def forward(self, x, /, y, *, scale=1): ...

class Child(Renamed): ...
class ByModule(Mixin, other.Base): ...
class ByAlias(others.Base): ...
class ByStar(Base): ...

class Static(Module):
    @staticmethod
    def forward(x): ...

class Many(Module):
    @overload
    def forward(self, a): ...
    def forward(self, x, *rest): ...

def build(width: int = 4):
    def inner():
        return Other()
    net = Net()
    net.eval()
    return net

def both(flag):
    if flag:
        return Net(1)
    return Net(2)

def chain():
    return build(3)

net = build()

class Assigned(Module):
    forward = build

class Without(Module): ...
class NoSelf(Module):
    def forward(): ...

if FLAG:
    class Twice(Module):
        def forward(self, x): ...
else:
    class Twice(Module):
        def forward(self, y): ...

def either(flag):
    return Net() if flag else Child()

def two(flag):
    if flag:
        return Net()
    return Child()

def rebound():
    net = Net()
    net = wrap(net)
    return net

def nothing(): ...
def loop(): return loop()
value = 3
from .cycle import Cyclic
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text(_OTHER)
    (package / "net.py").write_text(_NET)
    (package / "cycle.py").write_text("from .net import Cyclic\n")
    (package / "broken.py").write_text("class Net(:\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "positional", "variadic"),
    [
        ("Net", ("x", "y"), ""),
        *((name, ("tokens", "mask"), "") for name in ("Child", "ByModule", "ByAlias", "ByStar")),
        ("Static", ("x",), ""),
        ("Many", ("x",), "rest"),
        *((name, ("x", "y"), "") for name in ("build", "both", "chain", "net")),
    ],
)
def test_parameters(folder: Path, name: str, positional: tuple[str, ...], variadic: str) -> None:
    forward = read_forward(folder / "nets" / "net.py", name, [str(folder)])
    assert (forward.positional, forward.variadic) == (positional, variadic)


def test_the_files_that_define_them(folder: Path) -> None:
    package = folder / "nets"
    assert read_forward(package / "net.py", "Child", []).files == (
        package / "net.py",
        package / "other.py",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Assigned", "does not define `forward` as a method"),
        ("Without", 'the class "Without" has no `forward`'),
        ("NoSelf", "has no `self`"),
        ("Twice", 'no definition of "Twice"'),
        ("Assgned", """no definition of "Assgned" can be read; did you mean 'Assigned'"""),
        *((name, f'that "{name}" returns cannot be read') for name in ("either", "two")),
        *((name, f'that "{name}" returns cannot be read') for name in ("rebound", "nothing")),
        ("loop", "cannot be read"),
        ("Cyclic", 'no definition of "Cyclic"'),
        ("missing", 'no definition of "missing"'),
        ("value", "neither a class nor a function"),
    ],
)
def test_parameters_that_cannot_be_read(folder: Path, name: str, reason: str) -> None:
    with pytest.raises(UnreadableForward, match=reason):
        read_forward(folder / "nets" / "net.py", name, [str(folder)])


@pytest.mark.parametrize("file", ["broken.py", "absent.py"])
def test_a_file_that_cannot_be_read(folder: Path, file: str) -> None:
    with pytest.raises(UnreadableForward, match=f"{file} cannot be read"):
        read_forward(folder / "nets" / file, "Net", [])


_INPUTS = """
import math
import nets.tables as tables
from nets.helpers import draw
from . import others

LIMIT = 3

def fill(shape):
    return draw(shape, LIMIT, tables.WIDTH, others.DEPTH, math.pi)

class Net: ...

if LIMIT:
    del math.tau

if __name__ == "__main__":
    Net()
"""
_FILES = {
    "nets/__init__.py": "",
    "nets/inputs.py": _INPUTS,
    "nets/helpers.py": "def draw(*items):\n    scale(items)\ndef scale(a): ...\ndef rest(): ...\n",
    "nets/tables.py": "WIDTH = 4\n",
    "nets/others.py": "DEPTH = 5\n",
}


def hash_files(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    return hash_code(root, root / "nets/inputs.py", "fill", root / "elsewhere")


@pytest.mark.parametrize(
    ("file", "before", "after", "counts"),
    [
        ("inputs", "def fill(shape):", "def fill(shape):  # the inputs", False),
        ("inputs", "class Net: ...", "class Net: pass", False),
        ("inputs", "    Net()", "    Net", False),
        ("inputs", '__name__ == "__main__"', '__name__ != "__main__"', True),
        ("helpers", "def rest(): ...", "def rest(): pass", False),
        ("inputs", "tables.WIDTH, others", "others", True),
        ("inputs", "LIMIT = 3", "LIMIT = 0", True),
        ("inputs", "del math.tau", "del math.pi", True),
        ("helpers", "scale(a): ...", "scale(a): pass", True),
        ("tables", "4", "5", True),
        ("others", "5", "6", True),
        ("others", "DEPTH = 5", "DEPTH = (", True),
    ],
)
def test_the_code_of_a_function_contains_the_code_that_it_uses(
    tmp_path: Path, file: str, before: str, after: str, counts: bool
) -> None:
    name = f"nets/{file}.py"
    assert before in _FILES[name]
    changed = {**_FILES, name: _FILES[name].replace(before, after)}
    first = hash_files(tmp_path / "one", _FILES)
    assert first == hash_files(tmp_path / "two", _FILES)
    assert (first != hash_files(tmp_path / "three", changed)) is counts


def test_the_code_of_a_long_expression_has_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "nets/inputs.py"
    path.parent.mkdir()
    terms = " + ".join(["1.5"] * 1500)
    before = f"def fill():\n    return {terms}\n\nif {terms} > 3:\n    fill.a.b()\n"
    path.write_text(before)
    code = hash_code(tmp_path, path, "fill", tmp_path / "elsewhere")
    path.write_text(before.replace("1.5", "2.5", 1))
    assert len({"", code, hash_code(tmp_path, path, "fill", tmp_path / "elsewhere")}) == 3
