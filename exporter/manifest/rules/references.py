"""Check references: `file.py:attribute`, `package.module:attribute`, or a file.

Python files are parsed, not run. An attribute exists if a statement of the module defines it, or if
the module can define any name (a star import, `__getattr__`, `globals()`).
"""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from exporter.core.errors import Location, Problem, suggest_nearest
from exporter.core.frozen_model import Plain
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.syntax.python_source import (
    ForwardParameters,
    UnreadableForward,
    find_module_file,
    is_file,
    list_names,
    parse_python,
    read_forward,
)
from exporter.manifest.syntax.values import KeyPath, quote, split_data_file

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
#: The option with a list of types of modules.
FUNCTIONS = "export_modules_as_functions"
SAVED_MODELS = (".pt2", ".pt")


@dataclass(frozen=True, slots=True)
class _ModuleNames:
    """The names that a Python file defines at its top level."""

    names: frozenset[str]
    is_open: bool
    """Whether the module can define any other name."""


@dataclass(frozen=True, slots=True)
class References:
    """Checks references, and reads each file once."""

    root: Path
    fallback_root: Path | None = None
    """A folder for files that `root` lacks, such as files that git ignores."""
    files: set[Path] = field(default_factory=set)
    """Every existing file that an entry names."""
    _modules: dict[Path, _ModuleNames | Problem] = field(default_factory=dict)

    def check_source(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Check a source and return it relative to the model's own manifest."""
        location, _, attribute = text.rpartition(":")
        if not location and text.endswith(SAVED_MODELS):
            return self.check_file(model, path, text)
        if location.endswith(".py"):
            return self.check_function(model, path, text)
        if _MODULE.fullmatch(location) and attribute.isidentifier():
            self._check_module(model, path, location, attribute)
            return text
        hint = f'; did you mean "{location}.py:{attribute}"?' if "/" in location else ""
        if location.endswith(SAVED_MODELS):
            hint = f"; a saved model has no attributes, use {quote(location)}"
        form = '"file.py:attribute" or "package.module:attribute"'
        model.add_problem(path, f"expected {form}, got {quote(text)}{hint}")
        return text

    def check_function(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Check `file.py:attribute` and return it relative to the model's own manifest."""
        location, _, attribute = text.rpartition(":")
        if not (location.endswith(".py") and attribute.isidentifier()):
            model.add_problem(path, f'expected "file.py:attribute", got {quote(text)}')
            return text
        name = self._resolve_name(model, path, location)
        if not name:
            return text
        file = self._find_file(name) or self.root / name
        self._check_attribute(model, path, file, (name, attribute))
        if model.find_layer(path).folder == model.entry.folder:
            return text
        return f"{posixpath.relpath(name, model.entry.folder or '.')}:{attribute}"

    def check_module_types(
        self, model: EffectiveSettings, path: KeyPath, options: Mapping[str, Any]
    ) -> dict[str, Plain]:
        types = options.get(FUNCTIONS)
        if not isinstance(types, tuple):
            return {**options}
        checked: list[Plain] = []
        for index, text in enumerate(types):
            item: KeyPath = (*path, FUNCTIONS, index)
            if ":" in text:
                checked.append(self.check_source(model, item, text))
            else:
                form = '"file.py:Class" or "package.module:Class"'
                model.add_problem(item, f"expected {form}, got {quote(text)}")
        return {**options, FUNCTIONS: checked}

    def check_data_file(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Check that a tensor file exists; return it relative to the model's own manifest."""
        location, key = split_data_file(text)
        name = self.check_file(model, path, location)
        return f"{name}:{key}" if key else name

    def check_file(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Check that a file of the project exists; return it relative to the model's manifest."""
        folder = model.find_layer(path).folder
        if posixpath.normpath(posixpath.join(folder, text)).startswith("../"):
            model.add_problem(path, f"{quote(text)} is outside the project; use a file inside it")
            return text
        name = self._resolve_name(model, path, text)
        if not name or folder == model.entry.folder:
            return text
        return posixpath.relpath(name, model.entry.folder or ".")

    def read_forward(self, model: EffectiveSettings, source: str) -> ForwardParameters:
        """Return the parameters of `forward` of a source.

        Raises:
            UnreadableForward: If the source cannot be read without running it.
        """
        location, _, attribute = source.rpartition(":")
        if not location:
            raise UnreadableForward("a saved model has no parameters that can be read")
        if location.endswith(".py"):
            folder = model.find_layer(("source",)).folder
            file = self._find_file(posixpath.normpath(posixpath.join(folder, location)))
        else:
            file = find_module_file(location, self._list_folders(model))
        if file is None:
            raise UnreadableForward(f"the source of {quote(location)} is not found")
        forward = read_forward(file, attribute, self._list_folders(model))
        self.files.update(forward.files)
        return forward

    def _list_folders(self, model: EffectiveSettings) -> list[str]:
        """Return the folders in which the modules of a model are searched first."""
        return [str(self.root / model.entry.folder), str(self.root)]

    def has_match(self, pattern: str) -> bool:
        """Return True if a glob matches a file of the project, relative to its root."""
        roots = (self.root, self.fallback_root) if self.fallback_root else (self.root,)
        return any(path.is_file() for root in roots for path in root.glob(pattern))

    def _resolve_name(self, model: EffectiveSettings, path: KeyPath, text: str) -> str:
        """Return the file relative to the project's root, or "" if it does not exist."""
        if text.startswith("/") or "\\" in text or ":" in text:
            message = "expected a path relative to the manifest, with forward slashes"
            model.add_problem(path, f"{message}, got {quote(text)}")
            return ""
        name = posixpath.normpath(posixpath.join(model.find_layer(path).folder, text))
        if self._find_file(name):
            return name
        hint = _suggest_file(self.root / name)
        model.add_problem(path, f"the file {quote(name)} does not exist{hint}")
        return ""

    def _find_file(self, name: str) -> Path | None:
        roots = (self.root, self.fallback_root) if self.fallback_root else (self.root,)
        file = next((root / name for root in roots if is_file(root / name)), None)
        if file:
            self.files.add(file)
        return file

    def _check_module(
        self, model: EffectiveSettings, path: KeyPath, module: str, attribute: str
    ) -> None:
        """Check the attribute if the source of the module can be found without an import.

        If the package is not installed, nothing is reported: a command that does not export must
        also work in an environment without the packages of the models. The export reports it.
        """
        file = find_module_file(module, self._list_folders(model))
        if file:
            self.files.add(file)
            name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else ""
            self._check_attribute(model, path, file, (name or module, attribute))

    def _check_attribute(
        self, model: EffectiveSettings, path: KeyPath, file: Path, reference: tuple[str, str]
    ) -> None:
        name, attribute = reference
        if file not in self._modules:
            self._modules[file] = _read_module(file, name)
        module = self._modules[file]
        if isinstance(module, Problem):
            model.report.add(module)
        elif attribute not in module.names and not module.is_open:
            hint = suggest_nearest(attribute, module.names)
            model.add_problem(path, f"{name} does not define {quote(attribute)}{hint}")


def _suggest_file(file: Path) -> str:
    try:
        names = [each.stem for each in file.parent.iterdir() if each.suffix == file.suffix]
    except OSError:
        return ""
    close = difflib.get_close_matches(file.stem, names, n=1)
    return f"; did you mean '{close[0]}{file.suffix}'?" if close else ""


def _read_module(file: Path, name: str) -> _ModuleNames | Problem:
    try:
        return _parse_names(file.read_bytes())
    except SyntaxError as error:
        location = Location(file=name, line=error.lineno)
        return Problem(message=f"is not valid Python: {error.msg}", location=location)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"is not valid Python: {error}"
    return Problem(message=message, location=Location(file=name))


@lru_cache(maxsize=1 << 12)  # two revisions of a project share most of their files
def _parse_names(source: bytes) -> _ModuleNames:
    tree = parse_python(source)
    names = frozenset(list_names(tree.body))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    is_dynamic = any(
        isinstance(func, ast.Name) and func.id in ("globals", "exec") for func in calls
    )
    return _ModuleNames(names, is_open=bool(names & {"*", "__getattr__"}) or is_dynamic)
