"""The blocks of a module: which edit changes which of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.code_blocks import (
    TEXT_MARK,
    digest_blocks,
    format_blocks,
    list_blocks,
    read_current_blocks,
    reads_version,
)
from exporter.cache.states import read_source_state
from exporter.worker.dependencies.executed_code import ExecutedCode

SOURCE = '''
"""Models."""

import functools


@functools.cache
def scale(x, by=2.0):
    """Scale x."""
    return x * by


class Net:
    """A net."""

    size = 3

    def forward(self, x):
        def inner(y):
            return y + 1

        return tuple(inner(each) for each in x if each)

    @property
    def value(self):
        return 0.0

    @value.setter
    def value(self, to):
        self.kept = to


@register(cache)
def other(x):
    """Other."""
    return lambda: x in {1, 2, "a"}
'''


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        # Comments, docstrings and formatting.
        ('"""Models."""', "# Models", set()),
        ('    """Scale x."""\n', "", set()),
        ("size = 3", "size = (  # a comment\n        3\n    )", set()),
        ('    """A net."""\n', '    """Another net."""\n\n\n', set()),
        ("def scale(x, by=2.0):", "def scale(\n    x,\n    by=2.0,\n):", set()),
        ("for each in x if each", "\n    for each\n    in x\n    if each", set()),
        ('{1, 2, "a"}', '{"a", 1, 2}', set()),
        # A decorator that may read the docstring.
        ('"""Other."""', '"""Another."""', {"other"}),
        # Code, signatures and the kind of a function.
        ("x * by", "x + by", {"scale"}),
        ("x * by", "(yield)", {"", "scale"}),
        ("by=2.0", "by=2", {""}),
        ("by=2.0", "of=2.0", {"", "scale"}),
        ("return 0.0", "return -0.0", {"Net.value"}),
        ("= to", "= to + 1", {"Net.value#2"}),
        ("y + 1", "y + 2", {"Net.forward.<locals>.inner"}),
        ("if each", "if not each", {"Net.forward.<locals>.<genexpr>"}),
        ("size = 3", "size = 4", {"Net"}),
        ("import functools", "import functools, json", {""}),
        ("lambda: x in", "lambda: x not in", {"other.<locals>.<lambda>"}),
    ],
)
def test_an_edit_changes_the_blocks_that_contain_it(
    before: str, after: str, changed: set[str]
) -> None:
    assert before in SOURCE
    old = digest_blocks(SOURCE.encode())
    new = digest_blocks(SOURCE.replace(before, after).encode())
    assert {name for name in old if new.get(name) != old[name]} == changed


@pytest.mark.parametrize(
    ("code", "readers"),
    [
        ("def a(): return a.__doc__", {"a"}),
        ("def a(): return sys._getframe().f_lineno", {"a"}),
        ("text = __doc__", {""}),
        ("def a(): return [getattr(a, each) for each in ('__doc__', '__name__')]", {"a"}),
        ("def a(): return inspect.getframeinfo(frame, context=0)[1]", {"a"}),
        ("def a():\n    import pydoc\n    return pydoc.render_doc(a)", {"a"}),
        ("class A:\n    '''A text.'''\n    size = 3", set()),
        (
            "class A:\n    '''A text.'''\n    def run(self): return getattr(self, '__doc__')",
            {"A.run"},
        ),
        ("def a(): '''Of lines, not of traceback.'''", set()),
    ],
)
def test_blocks_that_read_docstrings_or_lines_are_marked(code: str, readers: set[str]) -> None:
    blocks = digest_blocks(code.encode())
    assert {name for name, digest in blocks.items() if digest.endswith(TEXT_MARK)} == readers


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ('__version__ = "1"', '__version__ = version = "2"', {"", "the version"}),
        ('"1"', '"2.dev1"', {"the version"}),
        ('"1"', "read()", {"", "the version"}),
        ("(1, 2)", "(1, 3)", {"the version"}),
        ("(1, 2)", "(1, [3])", {"", "the version"}),
        ("WIDTH = 1", "WIDTH = 2", {""}),
    ],
)
def test_a_version_is_no_part_of_the_code_of_its_module(
    before: str, after: str, changed: set[str]
) -> None:
    text = '__version__ = "1"\nversion_tuple = (1, 2)\nWIDTH = 1\n'
    old, new = (digest_blocks(each.encode()) for each in (text, text.replace(before, after)))
    assert {name for name in old if new.get(name) != old[name]} == changed


@pytest.mark.parametrize(
    ("code", "is_reader"),
    [
        ("from acme._version import __version__, version", False),
        ("__all__ = ['__version__']\n__version__ = '1'", False),
        ('"A smaller version."\nimport acme._version', False),
        ("from acme import __version__ as text", True),
        ("import acme\nprint(acme.version)", True),
        ("from acme import _version\nprint(_version)", True),
        ("getattr(acme, 'version')", True),
        ("'{0.version} of it'.format(acme)", True),
        ("vars(acme)", True),
        ("def unused(): return __version__[0]", True),
    ],
)
def test_code_that_can_read_a_version_is_found(tmp_path: Path, code: str, is_reader: bool) -> None:
    (tmp_path / "net.py").write_text(code)
    assert reads_version(str(tmp_path / "net.py")) is is_reader


def test_a_state_has_the_recorded_blocks_only(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    blocks = digest_blocks(SOURCE.encode())
    state = format_blocks({name: blocks[name] for name in ("", "scale")})
    assert read_source_state(path, state) == state
    for text, is_current in ((f"{SOURCE}# more", True), (SOURCE.replace("x * by", "x"), False)):
        path.write_text(text)
        assert (read_source_state(path, state) == state) is is_current
    path.write_text("def broken(:")  # it is no state of blocks
    assert len(read_source_state(path, state)) == 64
    path.unlink()
    assert read_source_state(path, state) == "missing"


#: Python that Python runs, and that `ast` or `repr` cannot process.
LONG = ["x = " + " + ".join(["1.5"] * 1500 + ["y"]), "x = " + "9" * 4300, "x = 0x" + "f" * 5000]


@pytest.mark.parametrize("line", LONG)
def test_a_long_expression_counts_as_text(tmp_path: Path, line: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(f"y = 1\n{line}\n")
    code = compile(path.read_bytes(), str(path), "exec")
    executed = ExecutedCode()
    executed._modules.append((str(path), path.read_bytes(), code))
    executed.blocks += [block for _, block in list_blocks(code)]
    executed.add_all()
    states = executed.list_blocks()
    assert states.keys() <= {str(path)}
    state = format_blocks(states.get(str(path), {"": "0" * 16}))
    read_current_blocks(path, state, "text")
    reads_version(str(path))


def test_a_module_without_blocks_that_reads_lines_makes_all_texts_count(tmp_path: Path) -> None:
    executed = ExecutedCode()
    for name, text in (("a.py", "x = 1"), ("b.py", f"{LONG[0]}\nframe.f_lineno")):
        code = compile(text, name, "exec")
        executed._modules.append((name, text.encode(), code))
        executed.blocks += [block for _, block in list_blocks(code)]
    executed.add_all()
    assert not executed.list_blocks()
