"""Merge layers of settings into the effective settings of a model, and check its references.

Later layers win: built-in default, `[tool.exporter.defaults]`, `[defaults]` of the file, the parent
that `extends` names, the entry. A parent is resolved with its own file's `[defaults]` before an
entry extends it. `init`, `options` and `axes` are merged key by key, and so is each axis. Other
keys are replaced.

A reference is `file.py:attribute`, `package.module:attribute`, or a file. Python files are parsed,
not run. An attribute exists if a statement of the module defines it, or if the module can define
any name (a star import, `__getattr__`, `globals()`).
"""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location, Problem, suggest_nearest
from exporter.core.files import TEXT_LIMIT, is_absent, read_regular_file
from exporter.core.git import list_ignored_files
from exporter.manifest.resolved.model import Bound, Expectation, Skip, Tolerance
from exporter.manifest.schema.entry import (
    ConditionTable,
    OptionsTable,
    Settings,
)
from exporter.manifest.schema.tables import AxisTable, ToleranceTable
from exporter.manifest.syntax import python_source
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.releases import Release
from exporter.manifest.syntax.table import FUNCTION, Table, read_defaults
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import (
    KeyPath,
    format_opsets,
    join_words,
    quote,
    split_data_file,
)

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
#: The option with a list of types of modules.
FUNCTIONS = "export_modules_as_functions"
SAVED_MODELS = (".pt2", ".pt", ".jit")
#: The suffix of a source that is a finished file: the oracle of others.
ONNX_FILE = ".onnx"
#: Where the ways to get such a file in CI are described.
FETCH_GUIDE = "`exporter guide weights`"


@dataclass(frozen=True, slots=True)
class _ModuleNames:
    """The names that a Python file defines at its top level."""

    names: frozenset[str]
    is_open: bool
    """Whether the module can define any other name."""


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """The things that entries refer to; it reads each file once."""

    root: Path
    fallback_root: Path | None = None
    """A folder for files that `root` lacks, such as files that git ignores."""
    devices: Collection[str] = ()
    """Every device of the project, by name."""
    pinned: Mapping[str, Release] = field(default_factory=dict)
    """The devices whose environment pins a release of ONNX Runtime."""
    files: set[Path] = field(default_factory=set)
    """Every existing file that an entry names."""
    uses_initial_weights: bool = False
    """Whether initial values replace a file of weights that git ignores and this machine lacks."""
    missing_files: dict[str, list[str]] = field(default_factory=dict)
    """The models of each data file that does not exist and that git ignores."""
    _modules: dict[Path, _ModuleNames | Problem] = field(default_factory=dict)

    @property
    def is_revision(self) -> bool:
        """Whether the files are those of a commit, which lacks the data files that git ignores."""
        return self.fallback_root is not None

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.root, self.fallback_root) if self.fallback_root else (self.root,)

    def find_file(self, name: str) -> Path | None:
        file = next(
            (root / name for root in self.roots if python_source.is_file(root / name)), None
        )
        if file:
            self.files.add(file)
        return file

    def read_names(self, file: Path, name: str) -> _ModuleNames | Problem:
        """Return the names of a module, or the problem of a file that is not valid Python."""
        if file not in self._modules:
            self._modules[file] = _read_module(file, name)
        return self._modules[file]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One table of settings with its place."""

    file: TomlFile
    path: KeyPath
    table: Settings
    broken: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """The problems of each invalid key, which are already reported."""

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the project's root; "" for the root."""
        return posixpath.dirname(self.file.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings of one model."""

    id: str
    own_layer: Layer
    """The table of the entry."""
    settings: Settings
    origins: Mapping[KeyPath, Layer]
    """The layer of each key, of each item of the merged tables, and of each key of an axis."""
    broken: Mapping[str, tuple[Problem, ...]]
    """The problems of each key that is invalid in the layer that sets it."""
    report: ProblemCollector
    """The problems of this model only."""
    project: ProjectFacts
    source_paths: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """The table with `repeat` of each copy, such as `("inputs", 5)`."""

    def find_source_path(self, key_path: KeyPath) -> KeyPath:
        return (*self.source_paths.get(key_path[:2], key_path[:2]), *key_path[2:])

    def relate(self, key_path: KeyPath, name: str) -> str:
        """Return a name in the layer at `path` relative to the model's own manifest."""
        folder, own_folder = self.find_layer(key_path).folder, self.own_layer.folder
        if folder == own_folder:
            return name
        return posixpath.relpath(posixpath.join(folder, name), own_folder or ".")

    def find_layer(self, key_path: KeyPath) -> Layer:
        """Return the layer that sets the value at `path`, or the entry if none sets it."""
        layers = (self.origins.get(key_path[:length]) for length in (3, 2, 1))
        return next((layer for layer in layers if layer), self.own_layer)

    def add_problem(self, key_path: KeyPath, message: str) -> None:
        """Report a problem at the place of the value, which may be in another layer."""
        key_path = self.find_source_path(key_path)
        layer = self.find_layer(key_path)
        problem = layer.file.build_problem((*layer.path, *key_path), message)
        self.report.add(problem, model_id="" if layer is self.own_layer else self.id)

    def is_own(self, key_path: KeyPath) -> bool:
        """Return whether the entry itself sets the value, and no layer below it."""
        return self.find_layer(self.find_source_path(key_path)) is self.own_layer

    def has_valid(self, *keys: str) -> bool:
        """Return whether all keys exist and are valid, as rules require."""
        if not self.broken.keys().isdisjoint(keys):
            return False
        return all((key,) in self.origins for key in keys if key in Settings.required)

    def first_own_key(self, *keys: str) -> KeyPath:
        """Return the first of the contradictory keys that the entry itself sets."""
        own_keys = (key for key in keys if self.origins.get((key,)) is self.own_layer)
        return (next(own_keys, keys[0]),)

    def check_source(self, key_path: KeyPath, text: str) -> str:
        """Check a source and return it relative to the model's own manifest."""
        location, _, attribute = text.rpartition(":")
        if not location and text.endswith((*SAVED_MODELS, ONNX_FILE)):
            return self.check_file(key_path, text)
        if location.endswith(".py"):
            return self.check_function(key_path, text)
        if _MODULE.fullmatch(location) and attribute.isidentifier():
            # If the package is not installed, nothing is reported: a command that does not export
            # must also work in an environment without the packages of the models. The export
            # reports it.
            if file := python_source.find_module_file(location, self.list_folders()):
                self.project.files.add(file)
                root = self.project.root
                name = file.relative_to(root).as_posix() if file.is_relative_to(root) else location
                self._check_attribute(key_path, file, name, attribute)
            return text
        hint = f'; did you mean "{location}.py:{attribute}"?' if "/" in location else ""
        if location.endswith((*SAVED_MODELS, ONNX_FILE)):
            hint = f"; a saved model has no attributes, use {quote(location)}"
        form = '"file.py:attribute" or "package.module:attribute"'
        self.add_problem(key_path, f"expected {form}, got {quote(text)}{hint}")
        return text

    def check_function(self, key_path: KeyPath, text: str) -> str:
        """Check `file.py:attribute` and return it relative to the model's own manifest."""
        location, _, attribute = text.rpartition(":")
        if not (location.endswith(".py") and attribute.isidentifier()):
            self.add_problem(key_path, f'expected "file.py:attribute", got {quote(text)}')
            return text
        name = self._resolve_name(key_path, location)
        if not name:
            return text
        file = self.project.find_file(name) or self.project.root / name
        self._check_attribute(key_path, file, name, attribute)
        return f"{self.relate(key_path, location)}:{attribute}"

    def check_functions(self, key_path: KeyPath, table: Table) -> Table:
        """Check the functions that a table names; return it with names as `check_function`."""
        fields = type(table).model_fields
        update: dict[str, Any] = {}
        for name in fields:
            value, path = getattr(table, name), (*key_path, name)
            if not value or FUNCTION not in fields[name].metadata:
                continue
            if isinstance(value, dict):
                update[name] = {
                    each: self.check_function((*path, each), text)
                    if isinstance(text, str)
                    else text
                    for each, text in value.items()
                }
            else:
                update[name] = self.check_function(path, value)
        return table.model_copy(update=update)

    def check_data_file(self, key_path: KeyPath, text: str) -> str:
        """Check that a tensor file exists; return it relative to the model's own manifest."""
        location, key = split_data_file(text)
        name = self.check_file(key_path, location)
        return f"{name}:{key}" if key else name

    def check_file(self, key_path: KeyPath, text: str) -> str:
        """Check that a file of the project exists; return it relative to the model's manifest."""
        folder = self.find_layer(key_path).folder
        if posixpath.normpath(posixpath.join(folder, text)).startswith("../"):
            self.add_problem(
                key_path, f"{quote(text)} is outside the project; use a file inside it"
            )
            return text
        name = self._resolve_name(key_path, text, is_data=True)
        return self.relate(key_path, text) if name else text

    def describe_folder(
        self, key_path: KeyPath, text: str, suffixes: Sequence[str] | None = None
    ) -> str:
        """Return the problem of a folder in place of a file, with a file in it; "" if it is none.

        `suffixes`: Those of the files that can be meant; None for the one of `text`.
        """
        name = posixpath.normpath(posixpath.join(self.find_layer(key_path).folder, text))
        if name.split("/")[0] in ("", ".."):
            return ""
        known = (posixpath.splitext(text)[1],) if suffixes is None else suffixes
        with suppress(OSError, ValueError):  # it is no folder that can be read
            for each in sorted((self.project.root / name).iterdir()):
                if each.suffix in known and python_source.is_file(each):
                    file = quote(posixpath.join(text, each.name))
                    return f"{quote(text)} is a folder, expected a file; did you mean {file}?"
            return f"{quote(text)} is a folder, expected a file; name the file"
        return ""

    def lacks_ignored_file(self, name: str) -> bool:
        """Return whether no commit can have a file, relative to the root, and it is not here.

        A file that git does not ignore is a wrong name or a forgotten commit. A folder in its place
        or a file that cannot be read exists.
        """
        root = self.project.root
        return is_absent(root / name) and bool(list_ignored_files(root, [name], {}))

    def list_folders(self) -> list[str]:
        """Return the folders in which the modules of a model are searched first."""
        return [str(self.project.root / self.own_layer.folder), str(self.project.root)]

    def _resolve_name(self, key_path: KeyPath, text: str, *, is_data: bool = False) -> str:
        """Return the file relative to the project's root, or "" if it does not exist.

        At a revision, a data file need not exist: no promise depends on its content alone, and
        hashes that one side lacks are not compared.
        """
        if text.startswith("/") or "\\" in text or ":" in text:
            message = "expected a path relative to the manifest, with forward slashes"
            self.add_problem(key_path, f"{message}, got {quote(text)}")
            return ""
        name = posixpath.normpath(posixpath.join(self.find_layer(key_path).folder, text))
        if self.project.find_file(name) or (is_data and self.project.is_revision):
            return name
        folder = self.find_layer(key_path).folder
        if problem := self.describe_folder(key_path, text):
            self.add_problem(key_path, problem)
            return ""
        if self.project.find_file(posixpath.normpath(text)):
            right = quote(posixpath.relpath(text, folder))
            problem = f"the file {quote(name)} does not exist, and {quote(text)} does"
            self.add_problem(
                key_path, f"{problem}; write {right}, which begins at the folder of the manifest"
            )
            return ""
        file, hint = self.project.root / name, ""
        with suppress(OSError):
            names = [each.stem for each in file.parent.iterdir() if each.suffix == file.suffix]
            if close := difflib.get_close_matches(file.stem, names, n=1):
                hint = f"; did you mean '{close[0]}{file.suffix}'?"
        if is_data and self.lacks_ignored_file(name):
            self.project.missing_files.setdefault(name, []).append(self.id)
            hint = f"; git ignores it, so fetch it first: see {FETCH_GUIDE}"
        self.add_problem(key_path, f"the file {quote(name)} does not exist{hint}")
        return ""

    def _check_attribute(self, key_path: KeyPath, file: Path, name: str, attribute: str) -> None:
        module = self.project.read_names(file, name)
        if isinstance(module, Problem):
            self.report.add(module)
        elif attribute not in module.names and not module.is_open:
            hint = suggest_nearest(attribute, module.names)
            self.add_problem(key_path, f"{name} does not define {quote(attribute)}{hint}")


def merge_layers(
    id: str, layers: Sequence[Layer], report: ProblemCollector, project_facts: ProjectFacts
) -> EffectiveSettings:
    """Merge the layers, lowest first; the last one is the entry."""
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Layer] = {}
    broken: dict[str, tuple[Problem, ...]] = {}
    for layer in layers:
        for key, value in layer.table.list_explicit().items():
            if key in ("extends", "was"):  # each entry has its own
                continue
            origins[key,] = layer
            if key in Settings.merged:
                items = value.list_explicit() if isinstance(value, Table) else value
                lower = values.get(key, {})
                values[key] = {**lower, **items}
                origins |= {(key, item): layer for item in items}
                if key == "axes":
                    for name, axis in items.items():
                        merged = lower[name].list_explicit() if name in lower else {}
                        merged |= axis.list_explicit()
                        values[key][name] = AxisTable.model_construct(set(merged), **merged)
                    origins |= {
                        (key, name, item): layer
                        for name, axis in items.items()
                        for item in axis.list_explicit()
                    }
            else:
                values[key] = value
                broken.pop(key, None)
        for key, problems in layer.broken.items():
            broken[key] = (*broken.get(key, ()), *problems)
    if "options" in values:
        keys = set(values["options"])
        values["options"] = OptionsTable.model_construct(keys, **values["options"])
    return EffectiveSettings(
        id=id,
        own_layer=layers[-1],
        settings=Settings.model_construct(set(values), **{**read_defaults(Settings), **values}),
        origins=origins,
        broken=broken,
        report=report,
        project=project_facts,
    )


def _read_module(file: Path, name: str) -> _ModuleNames | Problem:
    try:
        return _parse_names(read_regular_file(file, TEXT_LIMIT, may_be_link=True))
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
    tree = python_source.parse_python(source)
    names = frozenset(python_source.list_names(tree.body))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    is_dynamic = any(
        isinstance(func, ast.Name) and func.id in ("globals", "exec") for func in calls
    )
    return _ModuleNames(names, is_open=bool(names & {"*", "__getattr__"}) or is_dynamic)


_Resolved = TypeVar("_Resolved", Expectation, Skip)


def resolve_conditions(
    entry: EffectiveSettings, key: str, type: type[_Resolved]
) -> tuple[_Resolved, ...]:
    tables = enumerate(getattr(entry.settings, key))
    return tuple(
        type.from_fields(table, opsets=resolve_condition(entry, (key, index), table))
        for index, table in tables
    )


def resolve_condition(
    entry: EffectiveSettings, key_path: KeyPath, table: ConditionTable
) -> tuple[int, ...] | None:
    """Check the device of a condition and return its opsets, or None if it has no opset."""
    devices = entry.settings.devices
    suffixes = dict.fromkeys(DeviceName(name).suffix_pattern for name in devices)
    if entry.has_valid("devices") and not any(
        DeviceName(name).matches(table.device) for name in devices
    ):
        hint = suggest_nearest(table.device, [*devices, *(f"*@{each}" for each in suffixes)])
        message = f"{quote(table.device)} matches no device of {join_words(devices)}{hint}"
        entry.add_problem((*key_path, "device"), message)
    if table.opset is None:
        return None
    opsets = tuple(opset for opset in table.opset if opset in entry.settings.opsets)
    # A condition of the defaults is for all models, of which some may have other opsets.
    if not opsets and entry.has_valid("opsets") and entry.is_own(key_path):
        promised = format_opsets(entry.settings.opsets)
        entry.add_problem(
            (*key_path, "opset"), f"matches none of the model's opsets {promised}; use one of them"
        )
    return opsets


def resolve_tolerance(
    entry: EffectiveSettings, key_path: KeyPath, table: ToleranceTable
) -> Tolerance:
    tables, devices = table.__pydantic_extra__ or {}, entry.project.devices
    for name in tables:
        if name not in FLOATS and name not in devices:
            hint = suggest_nearest(name, [*FLOATS, *devices])
            entry.add_problem((*key_path, name), f"is neither a floating dtype nor a device{hint}")
    return Tolerance.from_fields(
        _resolve_bound(table),
        by_dtype={name: _resolve_bound(each) for name, each in tables.items() if name in FLOATS},
        by_device={name: _resolve_bound(each) for name, each in tables.items() if name in devices},
    )


def _resolve_bound(table: Bound) -> Bound:
    """Return the bound; if only one of `atol` and `rtol` is set, the other one is 0."""
    is_explicit = table.atol is not None or table.rtol is not None
    return Bound.from_fields(
        table,
        atol=table.atol or 0.0 if is_explicit else None,
        rtol=table.rtol or 0.0 if is_explicit else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The opsets of a model with the same exporter and capture."""

    settings: Settings
    """The settings of these opsets; `opsets` contains only these."""
    override: int | None
    """The override that sets `exporter` or `capture`; None if the entry sets them."""

    def find_path(self, key: str) -> KeyPath | None:
        """Return the path of `key` in the override, or None if there is no override."""
        return None if self.override is None else ("overrides", self.override, key)


def split_variants(entry: EffectiveSettings) -> tuple[Variant, ...]:
    """Group the opsets of a model by the exporter and capture of its overrides.

    Returns:
        An empty tuple if one of these keys is invalid.
    """
    settings = entry.settings
    if not entry.has_valid("exporter", "capture", "opsets", "overrides"):
        return ()
    groups: dict[tuple[object, object, int | None], list[int]] = {}
    for opset in settings.opsets:
        exporter = settings.exporter
        capture = settings.capture
        origin = None
        for index, table in enumerate(settings.overrides):
            if table.opset is not None and opset not in table.opset:
                continue
            if table.exporter is not None:
                # A capture belongs to one exporter.
                exporter = table.exporter
                capture = None
                origin = index
            if table.capture is not None:
                capture, origin = table.capture, index
        groups.setdefault((exporter, capture, origin), []).append(opset)
    return tuple(
        Variant(
            settings=settings.model_copy(
                update={"exporter": exporter, "capture": capture, "opsets": tuple(opsets)}
            ),
            override=origin,
        )
        for (exporter, capture, origin), opsets in groups.items()
    )
