"""The blocks of a module: its own code, and that of each function and class in it.

A result depends on the blocks that ran. The hash of a block contains neither comments, docstrings
nor the place of its lines. Of an inner block it contains only what `inspect` shows of a signature.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from exporter.core.files import TEXT_LIMIT, read_regular_file

#: The first word of the state of a source of which only code ran. Pairs of names and hashes follow.
BLOCKS = "blocks "
#: The name of the whole text, if a record depends on it, too.
TEXT = "*"
#: The name of the values of a module's version, if code can read them.
VERSION = "the version"
#: An assignment of a version, as setuptools-scm writes it with each commit.
_SET = r"((__)?(version(_tuple)?|commit_id)(__)? = )+('[^']*'|\((\d+|'[^']*'|, )*\)|None)"
#: Statements that only pass a version on, and docstrings.
_PASS = r"(from \S+ )?import (?!.* as ).*|__all__ = .*|\w+: \w+|(?P<q>\"{3}|'{3})[\s\S]*?(?P=q)"
_UNREAD = re.compile(rf"^ *({_SET}|{_PASS})$", re.MULTILINE)
#: The names with which code can read one.
_READERS = r"_?version|_*(version|version_tuple|commit_id)_*|vars|globals|locals|dir|eval|exec"
_READ = re.compile(rf"\b({_READERS}|getmembers|__dict__)\b")
#: Names of docstrings, lines of the source and bytecode.
_TEXT_NAMES = re.compile(
    r"__(doc|code)__|findCaller|get(inner|outer)frames|getdoc|(?<!first)lineno|^(co_.*|dis|getframeinfo|marshal|pydoc|traceback)$"
)
#: The last character of a hash if a block uses one of them.
TEXT_MARK = "!"
#: Decorators that do not read the docstring of what they decorate.
_DECORATORS = re.compile(
    r"([\w.]+\.)?(cache|(class|static)method|dataclass|no_grad|property|setter)(\(.*\))?"
)
_Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_Expression: TypeAlias = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
#: The fields of code that an inner block shows, and the others without those of lines.
_COUNTS = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount")
_VISIBLE = ("co_name", "co_qualname", "co_flags", "co_freevars", *_COUNTS)
_FIELDS = (*_VISIBLE, "co_code", "co_names", "co_varnames", "co_cellvars", "co_exceptiontable")


def list_blocks(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield the name and code of a module and of all its blocks.

    The names are those of Python, such as `Net.forward`, with a number from the second one with
    the same name, and "" for the module.
    """
    counts: dict[str, int] = {}
    pending = [code]
    while pending:
        block = pending.pop()
        name = "" if block is code else block.co_qualname
        counts[name] = counts.get(name, 0) + 1
        yield (name if counts[name] == 1 else f"{name}#{counts[name]}"), block
        pending += [each for each in reversed(block.co_consts) if isinstance(each, CodeType)]


@cache
def digest_blocks(source: bytes) -> dict[str, str]:
    """Return the hash of each block by its name.

    Raises:
        SyntaxError: if the source is not Python, and ValueError if it is not text.
    """
    tree = ast.parse(source)
    values = ""
    for node in tree.body:
        is_short = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple)
        if is_short and re.fullmatch(_SET, text := ast.unparse(node)):
            values += text
            vars(node)["value"] = ast.Constant(None)
    _normalize(tree, 1, itertools.count(2))
    code = compile(tree, "", "exec", dont_inherit=True, optimize=0)
    hashes = {name: _digest(block) for name, block in list_blocks(code)}
    return hashes | ({VERSION: _hash(values)} if values else {})


def names_texts(source: bytes) -> bool:
    """Return whether a source without blocks has a name such as `__doc__` or `co_code`."""
    words = re.findall(r"\w+", source.decode(errors="replace"))
    return any(map(_TEXT_NAMES.search, words))


def reads_version(path_text: str) -> bool:
    """Return True if a file has code that can read the version of a module."""
    try:
        text = ast.unparse(ast.parse(_read(Path(path_text)))) if path_text.endswith(".py") else ""
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return _READ.search(_UNREAD.sub("", text)) is not None


def _read(path: Path) -> bytes:
    return read_regular_file(path, TEXT_LIMIT, may_be_link=True)


def format_blocks(states: Mapping[str, str]) -> str:
    """Return the state of a source of which these blocks ran."""
    return BLOCKS + ",".join(f"{name}={state}" for name, state in sorted(states.items()))


def read_blocks(state: str) -> dict[str, str]:
    """Return the names and hashes in a state of blocks."""
    pairs = (item.rpartition("=") for item in state.removeprefix(BLOCKS).split(","))
    return {name: digest for name, _, digest in pairs}


def find_changed_block(before: str, after: str) -> str | None:
    """Return the first block with another hash, or None if no block of both states has one."""
    old, new = read_blocks(before), read_blocks(after)
    names = (name for name in old.keys() - {TEXT} if new.get(name, old[name]) != old[name])
    return min(names, default=None)


def read_current_blocks(path: Path, earlier: str, text: str) -> str:
    """Return the current state of the blocks in a state; `text` is the hash of the file."""
    try:
        current = {**digest_blocks(_read(path)), TEXT: text}
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return format_blocks({name: current.get(name, "") for name in read_blocks(earlier)})


def _normalize(node: ast.AST, line: int, lines: Iterator[int]) -> None:
    """Remove docstrings and give each block one line.

    Python adds instructions for a debugger between lines, and merges equal blocks of one line.
    """
    if isinstance(node, ast.Module | _Definition):
        _remove_docstring(node)
    if isinstance(node, _Definition | _Expression):
        line = next(lines)
    vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    for child in ast.iter_child_nodes(node):
        _normalize(child, line, lines)


def _remove_docstring(node: ast.Module | _Definition) -> None:
    """Remove a docstring that no unknown decorator or metaclass receives."""
    decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
    is_given = getattr(node, "keywords", ()) or not all(map(_DECORATORS.fullmatch, decorators))
    if is_given or ast.get_docstring(node, clean=False) is None:
        return
    # A class whose body reads `__doc__` keeps its docstring.
    if not any(isinstance(each, ast.Name) and each.id == "__doc__" for each in ast.walk(node)):
        node.body[:1] = [] if len(node.body) > 1 else [ast.Pass(lineno=1, col_offset=0)]


def _digest(code: CodeType) -> str:
    values = [*(getattr(code, name) for name in _FIELDS), *code.co_consts]
    names = {*code.co_names, *_list_texts(code.co_consts)}
    if not code.co_flags & CO_OPTIMIZED and code.co_name != "<module>":
        names.discard("__doc__")  # the body of a class stores its docstring as `__doc__`
    mark = TEXT_MARK if any(map(_TEXT_NAMES.search, names)) else ""
    return _hash("\n".join(map(_to_text, values))) + mark


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, tuple | frozenset):
        yield from itertools.chain.from_iterable(map(_list_texts, value))
    elif isinstance(value, str):
        yield value


def _to_text(value: Any) -> str:
    """Return a text that differs for different constants of Python, such as 0.0, -0.0 and False."""
    if isinstance(value, CodeType):
        has_rest = bool(value.co_flags & CO_VARARGS), bool(value.co_flags & CO_VARKEYWORDS)
        count = value.co_argcount + value.co_kwonlyargcount + sum(has_rest)
        return repr([*(getattr(value, name) for name in _VISIBLE), value.co_varnames[:count]])
    if isinstance(value, tuple | frozenset):  # the order of a set changes from process to process
        texts = [*map(_to_text, value)]
        return f"{type(value).__name__}{texts if isinstance(value, tuple) else sorted(texts)}"
    return repr(value)
