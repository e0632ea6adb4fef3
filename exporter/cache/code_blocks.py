"""The blocks of a module: its own code, and that of each function and class in it.

A result depends on the blocks that ran. The hash of a block contains neither comments, docstrings
nor the place of its lines. Of an inner block it contains only what a caller can see: name and kind.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections.abc import Iterator
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

#: The first word of the state of a source of which only code ran. Pairs of names and hashes follow.
BLOCKS = "blocks "
#: The name of the whole text, if a record depends on it, too.
TEXT = "*"
#: Decorators that do not read the docstring of what they decorate.
_DECORATORS = frozenset(
    {
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "lru_cache", "no_grad", "inference_mode", "overload", "override"),
        *("property", "staticmethod", "wraps"),
    }
)
#: Names of docstrings, lines of the source and bytecode.
_TEXT_NAMES = re.compile(r"__doc__|getdoc|(?<!first)lineno|^(co_.*|dis|marshal|traceback)$")
_TEXT_MARK = "!"
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLOCK_NODES = (*_DEFINITIONS, ast.Lambda, *_COMPREHENSIONS)
#: Fields of an inner block that its function shows: `inspect` reads them from the signature.
_VISIBLE = (
    *("co_name", "co_qualname", "co_flags", "co_argcount", "co_posonlyargcount"),
    *("co_kwonlyargcount", "co_freevars"),
)
#: The other fields, without the constants and all that describes lines.
_FIELDS = (
    *(*_VISIBLE, "co_code", "co_names", "co_varnames", "co_cellvars", "co_nlocals"),
    *("co_stacksize", "co_exceptiontable"),
)


def list_blocks(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield the name and code of a module and of all its blocks, in the order of their text.

    The names are those of Python, such as `Net.forward`, with a number from the second one with
    the same name, and "" for the module.
    """
    counts: dict[str, int] = {}
    pending = [code]
    while pending:
        block = pending.pop()
        name = "" if block is code else block.co_qualname
        count = counts[name] = counts.get(name, 0) + 1
        yield (name if count == 1 else f"{name}#{count}"), block
        pending += [each for each in reversed(block.co_consts) if isinstance(each, CodeType)]


@cache
def digest_blocks(source: bytes) -> dict[str, str]:
    """Return the hash of each block by its name.

    Raises:
        SyntaxError: if the source is not Python, and ValueError if it is not text.
    """
    tree = ast.parse(source)
    _normalize(tree, 1, itertools.count(2))
    code = compile(tree, "", "exec", dont_inherit=True, optimize=0)
    return {name: _digest(block) for name, block in list_blocks(code)}


def reads_text(digest: str) -> bool:
    """Return True if a block can read docstrings, numbers of lines or bytecode."""
    return digest.endswith(_TEXT_MARK)


def format_blocks(states: dict[str, str]) -> str:
    """Return the state of a source of which these blocks ran."""
    return BLOCKS + ",".join(f"{name}={state}" for name, state in sorted(states.items()))


def read_blocks(state: str) -> dict[str, str]:
    """Return the names and hashes of a state of blocks."""
    pairs = (item.rpartition("=") for item in state.removeprefix(BLOCKS).split(","))
    return {name: digest for name, _, digest in pairs}


def find_changed_block(before: str, after: str) -> str:
    """Return the first block with another hash, or "" if that is the module or its text."""
    old, new = read_blocks(before), read_blocks(after)
    changed = (name for name in old if new.get(name, old[name]) != old[name])
    return next(changed, "").replace(TEXT, "")


def have_same_blocks(before: str, after: str) -> bool:
    """Return True for equal states, also if other blocks of the same code ran."""
    old, new = read_blocks(before), read_blocks(after)
    return before == after or (
        before.startswith(BLOCKS)
        and after.startswith(BLOCKS)
        and all(new.get(name, old[name]) == old[name] for name in old if name != TEXT)
    )


def read_current_blocks(path: Path, before: str, text: str) -> str:
    """Return the current state of the blocks in a state; `text` is the hash of the file."""
    try:
        current = {**_read_blocks(path, text), TEXT: text}
    except (OSError, SyntaxError, ValueError, RecursionError):
        return text
    return format_blocks({name: current.get(name, "") for name in read_blocks(before)})


@cache
def _read_blocks(path: Path, _text: str) -> dict[str, str]:
    return digest_blocks(path.read_bytes())


def _normalize(node: ast.AST, line: int, lines: Iterator[int]) -> None:
    """Remove docstrings and give each block one line.

    Python adds instructions for a debugger between lines, and merges equal blocks of one line.
    """
    _remove_docstring(node)
    if isinstance(node, _BLOCK_NODES):
        line = next(lines)
    vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    for child in ast.iter_child_nodes(node):
        _normalize(child, line, lines)


def _remove_docstring(node: ast.AST) -> None:
    """Remove a docstring that no unknown decorator or metaclass receives."""
    if (
        not isinstance(node, (ast.Module, *_DEFINITIONS))
        or ast.get_docstring(node, clean=False) is None
    ):
        return
    for decorator in getattr(node, "decorator_list", ()):
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if getattr(function, "attr", getattr(function, "id", "")) not in _DECORATORS:
            return
    names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    if not getattr(node, "keywords", ()) and "__doc__" not in names:
        node.body[:1] = [] if len(node.body) > 1 else [ast.Pass(lineno=1, col_offset=0)]


def _digest(code: CodeType) -> str:
    fields = [_to_text(getattr(code, name)) for name in _FIELDS]
    fields += map(_to_text, code.co_consts)
    digest = hashlib.sha256("\n".join(fields).encode(errors="surrogatepass")).hexdigest()[:16]
    names = {*code.co_names, *(each for each in code.co_consts if isinstance(each, str))}
    if not code.co_flags & CO_OPTIMIZED and code.co_name != "<module>":
        names.discard("__doc__")  # a class, which defines its own
    return digest + (_TEXT_MARK if any(map(_TEXT_NAMES.search, names)) else "")


def _to_text(value: Any) -> str:
    """Return a text that differs for different constants of Python, such as 0.0, -0.0 and False."""
    if isinstance(value, CodeType):
        count = value.co_argcount + value.co_kwonlyargcount
        return repr([*(getattr(value, name) for name in _VISIBLE), value.co_varnames[:count]])
    if isinstance(value, tuple):
        return f"({','.join(map(_to_text, value))})"
    if isinstance(value, frozenset):  # its order changes from process to process
        return f"{{{','.join(sorted(map(_to_text, value)))}}}"
    return repr(value)
