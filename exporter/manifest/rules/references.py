"""`file.py:attribute`, `package.module:attribute` or a file in, whether it exists out, by reading.

Files are parsed, not run: an attribute exists where a statement of the module defines it, or where
the module could define anything (a star import, `__getattr__`, `globals()`).
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import posixpath
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

from exporter.core.errors import Location, Problem, suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.syntax.message_format import KeyPath, quote
from exporter.manifest.syntax.tensor_files import split_data_file

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class _Names:
    """What a Python file defines at its top level."""

    names: frozenset[str]
    is_open: bool
    """Whether there may be more than these."""


@dataclass(frozen=True, slots=True)
class References:
    """Checks references, and reads each file once."""

    root: Path
    beside: Path | None = None
    """Where files lie that `root` lacks: what git ignores, of a project that it holds."""
    found: set[Path] = field(default_factory=set)
    """Every file that is named and there."""
    _files: dict[Path, _Names | Problem] = field(default_factory=dict)

    def source(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Checks a reference of either form; returns it relative to the model's own manifest."""
        place, _, attribute = text.rpartition(":")
        if not place and text.endswith((".pt2", ".pt")):
            return self.file(model, path, text)
        if place.endswith(".py"):
            return self.function(model, path, text)
        if not (_MODULE.fullmatch(place) and attribute.isidentifier()):
            form = '"file.py:attribute" or "package.module:attribute"'
            hint = f'; did you mean "{place}.py:{attribute}"?' if "/" in place else ""
            if place.endswith((".pt2", ".pt")):
                hint = f"; a saved model has no attributes: {quote(place)}"
            model.add_problem(path, f"expected {form}, got {quote(text)}{hint}")
        else:
            self._module(model, path, place, attribute)
        return text

    def function(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Checks a reference of the file form; returns it relative to the model's own manifest."""
        place, _, attribute = text.rpartition(":")
        if not (place.endswith(".py") and attribute.isidentifier()):
            model.add_problem(path, f'expected "file.py:attribute", got {quote(text)}')
            return text
        name = self._existing(model, path, place)
        if not name:
            return text
        self._attribute(model, path, self._found(name) or self.root / name, (name, attribute))
        if model.origin(path).folder == model.own.folder:
            return text
        return f"{posixpath.relpath(name, model.own.folder or '.')}:{attribute}"

    def data_file(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Checks that a file of tensors exists; returns it relative to the model's manifest."""
        place, key = split_data_file(text)
        name = self.file(model, path, place)
        return f"{name}:{key}" if key else name

    def file(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Checks that a file of the project exists; returns it relative to the model's manifest."""
        if posixpath.normpath(posixpath.join(model.origin(path).folder, text)).startswith("../"):
            model.add_problem(path, f"{quote(text)} lies outside the project")
            return text
        name = self._existing(model, path, text)
        if not name or model.origin(path).folder == model.own.folder:
            return text
        return posixpath.relpath(name, model.own.folder or ".")

    def _existing(self, model: EffectiveSettings, path: KeyPath, place: str) -> str:
        """The file relative to the project's root; empty where there is none."""
        if place.startswith("/") or "\\" in place or ":" in place:
            message = "expected a path relative to the manifest, with forward slashes"
            model.add_problem(path, f"{message}, got {quote(place)}")
            return ""
        name = posixpath.normpath(posixpath.join(model.origin(path).folder, place))
        if self._found(name):
            return name
        model.add_problem(path, f"there is no file {quote(name)}{_nearest_file(self.root / name)}")
        return ""

    def _found(self, name: str) -> Path | None:
        places = (self.root, self.beside) if self.beside else (self.root,)
        file = next((place / name for place in places if _is_file(place / name)), None)
        if file:
            self.found.add(file)
        return file

    def _module(self, model: EffectiveSettings, path: KeyPath, module: str, attribute: str) -> None:
        package, *inner = module.split(".")
        found = _package(package, [str(self.root / model.own.folder), str(self.root)])
        if found is None:
            message = f"there is no package {quote(package)} in the project or in this environment"
            model.add_problem(path, message)
            return
        file = _module_file(found, inner)
        if file:
            self.found.add(file)
            name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else ""
            self._attribute(model, path, file, (name or module, attribute))

    def _attribute(
        self, model: EffectiveSettings, path: KeyPath, file: Path, wanted: tuple[str, str]
    ) -> None:
        name, attribute = wanted
        if file not in self._files:
            self._files[file] = _top_level(file, name)
        found = self._files[file]
        if isinstance(found, Problem):
            model.report.add(found)
        elif attribute not in found.names and not found.is_open:
            hint = suggest_nearest(attribute, found.names)
            model.add_problem(path, f"{name} does not define {quote(attribute)}{hint}")


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # such as a name that is too long
        return False


def _nearest_file(file: Path) -> str:
    try:
        names = [each.stem for each in file.parent.iterdir() if each.suffix == file.suffix]
    except OSError:
        return ""
    close = difflib.get_close_matches(file.stem, names, n=1)
    return f"; did you mean '{close[0]}{file.suffix}'?" if close else ""


@dataclass(frozen=True, slots=True)
class _Package:
    origin: str | None
    folders: Sequence[str]


def _package(name: str, places: Sequence[str]) -> _Package | None:
    """A top-level module or package, found as Python would, in these places before its own."""
    try:
        spec = PathFinder.find_spec(name, places) or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return _Package(spec.origin, list(spec.submodule_search_locations or ())) if spec else None


def _module_file(package: _Package, inner: Sequence[str]) -> Path | None:
    """The source of a module, where its path tells; None where only an import could."""
    if not inner:
        candidates = [Path(package.origin)] if package.origin else []
    else:
        bases = [Path(folder, *inner) for folder in package.folders]
        candidates = [
            file for base in bases for file in (base / "__init__.py", base.with_suffix(".py"))
        ]
    return next((file for file in candidates if file.suffix == ".py" and _is_file(file)), None)


def _top_level(file: Path, name: str) -> _Names | Problem:
    try:
        return _names_in(file.read_bytes())
    except SyntaxError as error:
        location = Location(file=name, line=error.lineno)
        return Problem(message=f"is not valid Python: {error.msg}", location=location)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        return Problem(message=message, location=Location(file=name))
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"is not valid Python: {error}"
        return Problem(message=message, location=Location(file=name))


@lru_cache(maxsize=1 << 12)  # two revisions of a project share most of their files
def _names_in(source: bytes) -> _Names:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file's own style is not our business
        tree = ast.parse(source)
    names = frozenset(_defined(tree.body))
    return _Names(names, is_open=bool(names & {"*", "__getattr__"}) or _calls_globals(tree))


def _defined(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Names bound by these statements, in branches and loops as well, not inside functions."""
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0]
            case _:
                yield from _bound(statement)


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.iter_child_nodes(statement):
        match node:
            case ast.stmt():
                yield from _defined([node])
            case ast.ExceptHandler() | ast.match_case():
                yield from _defined(node.body)
            case _:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        yield inner.id


def _calls_globals(tree: ast.Module) -> bool:
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Name) and func.id in ("globals", "exec") for func in called)
