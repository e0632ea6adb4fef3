"""Read Python files without running them: modules, and the names that they define."""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

from exporter.core.errors import suggest_nearest
from exporter.core.import_object import SOURCE_FOLDER


def find_module_file(module: str, folders: Sequence[str]) -> Path | None:
    """Return the source of a module, searched in the folders and then on Python's path.

    The last folder is the project, whose folder `src` is searched last.

    Returns:
        None if the package does not exist, or if only an import can find the module.
    """
    package, *inner = module.split(".")
    try:
        spec = (
            PathFinder.find_spec(package, folders)
            or importlib.util.find_spec(package)
            or PathFinder.find_spec(package, [f"{folders[-1]}/{SOURCE_FOLDER}"])
        )
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    candidates = [Path(spec.origin)] if spec.origin else []
    if inner:
        bases = [Path(folder, *inner) for folder in spec.submodule_search_locations or ()]
        candidates = [
            file for base in bases for file in (base / "__init__.py", base.with_suffix(".py"))
        ]
    return next((file for file in candidates if file.suffix == ".py" and is_file(file)), None)


def suggest_module(module: str, folders: Sequence[str]) -> str:
    """Return the end of a message with the nearest module of the folders, or "" if none is near.

    The last folder is the project, as in `find_module_file`.
    """
    parts = module.split(".")
    for index, name in enumerate(parts):
        names: set[str] = set()
        for folder in (*folders, f"{folders[-1]}/{SOURCE_FOLDER}"):
            base = Path(folder, *parts[:index])
            with suppress(OSError):
                names |= {each.stem for each in base.glob("*.py")}
                names |= {each.name for each in base.iterdir() if each.is_dir()}
        if name not in names:
            outer = "".join(f"{part}." for part in parts[:index])
            return suggest_nearest(f"{outer}{name}", [f"{outer}{each}" for each in names])
    return ""


def is_file(file: Path) -> bool:
    """Return whether a file exists; False if the system refuses its name."""
    try:
        return file.is_file()
    except OSError:  # such as a name that is too long
        return False


@lru_cache(maxsize=1 << 6)  # an entry needs a few files, and several entries share them
def parse_python(source: bytes) -> ast.Module:
    """Return the syntax tree of a Python file.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: If it cannot be parsed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the user's code are not for this tool
        return ast.parse(source)


def list_names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that the statements bind, also in branches and loops, not in functions."""
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0]
            case _:
                yield from _list_inner_names(statement)


def _list_inner_names(statement: ast.stmt) -> Iterator[str]:
    for node in ast.iter_child_nodes(statement):
        match node:
            case ast.stmt():
                yield from list_names([node])
            case ast.ExceptHandler() | ast.match_case():
                yield from list_names(node.body)
            case _:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        yield inner.id
