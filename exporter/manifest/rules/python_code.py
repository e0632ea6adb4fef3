"""Python code that is read without running it: parameters of `forward`, code of functions.

An input without `name` has the name of its parameter, and `gate --against` compares functions.
"""

from __future__ import annotations

import ast
import hashlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporter.core.errors import suggest_nearest
from exporter.core.files import TEXT_LIMIT, read_regular_file
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import list_call_paths
from exporter.manifest.syntax.python_source import (
    find_module_file,
    is_file,
    list_names,
    parse_python,
)
from exporter.manifest.syntax.values import join_words, parse_call_path, quote

#: Imports, base classes and calls between the name and its class; a longer chain is a cycle.
_MAX_STEPS = 40
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class UnreadableForward(Exception):
    """The parameters of `forward` cannot be read; the text is the reason."""


@dataclass(frozen=True, slots=True)
class ForwardParameters:
    """The parameters of `forward` without `self`, and the files that define them."""

    positional: tuple[str, ...]
    variadic: str
    """The name of `*args`, or ""."""
    files: tuple[Path, ...]


def read_forward(file: Path, name: str, folders: Sequence[str]) -> ForwardParameters:
    """Return the parameters of the `forward` of a class or of the model that a function builds.

    Raises:
        UnreadableForward: If the parameters cannot be read.
    """
    search = _Search(tuple(folders))
    definition = search.find_class(file, name)
    forward = search.find_forward(definition)
    parameters = [item.arg for item in (*forward.args.posonlyargs, *forward.args.args)]
    decorators = [node.id for node in forward.decorator_list if isinstance(node, ast.Name)]
    variadic = forward.args.vararg.arg if forward.args.vararg else ""
    if "staticmethod" not in decorators:
        if not parameters:
            raise UnreadableForward(f"`forward` of {quote(definition.node.name)} has no `self`")
        del parameters[0]
    return ForwardParameters(tuple(parameters), variadic, tuple(search.files))


def find_class(file: Path, name: str, folders: Sequence[str]) -> tuple[Path, str]:
    """Return file and name of a class, or of the class of the model that a function builds.

    Raises:
        UnreadableForward: If the class cannot be read.
    """
    definition = _Search(tuple(folders)).find_class(file, name)
    return definition.file, definition.node.name


def hash_code(root: Path, file: Path, name: str, fallback_root: Path) -> str:
    """Return a hash of the code of a function and of all code of the project that it uses, or "".

    Code counts if its name occurs in other code that counts, and so do statements of these files
    that define nothing, because they may change a definition. Comments and formatting do not.
    `fallback_root` is the current folder, in which Python may find packages of the project.
    """
    search = _Search((str(file.parent), str(root)))
    codes: dict[str, None] = {}
    pending, seen = [(file, name)], set[tuple[Path, str]]()
    while pending:
        file, name = key = pending.pop()
        if file.is_relative_to(fallback_root) and (root / file.relative_to(fallback_root)).exists():
            file = root / file.relative_to(fallback_root)
        is_own = file.is_relative_to(root) and "site-packages" not in file.parts
        if key in seen or not is_own or not is_file(file):
            continue
        seen.add(key)
        try:
            statements = search.parse(file).body
        except UnreadableForward:  # its bytes are compared
            codes[f"{file.relative_to(root)}: {_read(file)!r}"] = None
            continue
        for statement in statements:
            names = {*list_names([statement])}
            is_definition = names and not isinstance(statement, ast.If | ast.Try)
            is_other = is_definition and names.isdisjoint({name, "*"}) and name != "*"
            if is_other or _has_no_effect(statement):
                continue
            codes[f"{file.relative_to(root)}: {_dump(statement, file)}"] = None
            pending += _list_uses(statement, file, search)
    return hashlib.sha256("\n".join(sorted(codes)).encode()).hexdigest() if codes else ""


def _list_uses(statement: ast.stmt, file: Path, search: _Search) -> Iterator[tuple[Path, str]]:
    """Yield the files and names that a statement of a file uses; `*` is a whole module."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=used):
                yield file, used
            case ast.Import(names=aliases):
                for each in aliases:
                    if module := find_module_file(each.name, search.folders):
                        yield module, "*"
            case ast.ImportFrom(names=aliases):
                for each in aliases:
                    if module := search.find_imported(file, node, ""):
                        yield module, each.name
                    if inner := search.find_imported(file, node, each.name):
                        yield inner, "*"


def _dump(statement: ast.stmt, file: Path) -> str:
    try:
        return ast.dump(statement)
    except RecursionError:  # an expression of 1,500 terms: the text of its file is compared
        return repr(_read(file))


def _has_no_effect(statement: ast.stmt) -> bool:
    """Return whether an import of the module ignores it: a docstring, or code of a script."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value="__main__")],
            ),
            orelse=[],
        ):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Class:
    file: Path
    node: ast.ClassDef


@dataclass(slots=True)
class _Search:
    folders: tuple[str, ...]
    files: list[Path] = field(default_factory=list)
    steps: int = 0

    def find_class(self, file: Path, name: str) -> _Class:
        """Return the class of the model that the name stands for."""
        definition = self._find_definition(file, name)
        if definition is None:
            hint = suggest_nearest(name, list_names(self.parse(file).body))
            raise UnreadableForward(f"no definition of {quote(name)} can be read{hint}")
        file, node = definition
        match node:
            case ast.ClassDef():
                return _Class(file, node)
            case ast.FunctionDef():
                return self._find_result(file, node)
            case ast.Call():
                return self._find_called(file, node, name)
        raise UnreadableForward(f"{quote(name)} is neither a class nor a function")

    def find_forward(self, definition: _Class) -> _Function:
        """Return `forward` of the class or of the first base class that has it."""
        name = definition.node.name
        assigned = [node for node in definition.node.body if "forward" in _list_targets(node)]
        functions = [
            node
            for node in definition.node.body
            if isinstance(node, _Function)
            and node.name == "forward"
            and not any(ast.unparse(each).endswith("overload") for each in node.decorator_list)
        ]
        if assigned:
            raise UnreadableForward(f"{quote(name)} does not define `forward` as a method")
        if functions:
            return functions[-1]
        for base in definition.node.bases:
            if isinstance(base, ast.Name | ast.Attribute):
                target = self._find_expression(definition.file, base)
                if target is not None and isinstance(target[1], ast.ClassDef):
                    try:
                        return self.find_forward(_Class(target[0], target[1]))
                    except UnreadableForward:
                        continue  # the next base class may define it
        raise UnreadableForward(f"the class {quote(name)} has no `forward` that can be read")

    def _find_result(self, file: Path, function: ast.FunctionDef) -> _Class:
        """Return the class of the model that a function returns."""
        nodes = list(_walk_function(function))
        results = [_find_value(node.value, nodes) for node in nodes if isinstance(node, ast.Return)]
        calls = [value for value in results if isinstance(value, ast.Call)]
        if calls and len(calls) == len(results):
            classes = [self._find_called(file, call, function.name) for call in calls]
            if all(each.node is classes[0].node for each in classes):
                return classes[0]
        raise UnreadableForward(
            f"the class of the model that {quote(function.name)} returns cannot be read"
        )

    def _find_called(self, file: Path, call: ast.Call, name: str) -> _Class:
        definition = self._find_expression(file, call.func)
        match definition:
            case (inner, ast.ClassDef() as node):
                return _Class(inner, node)
            case (inner, ast.FunctionDef() as node):
                return self._find_result(inner, node)
        raise UnreadableForward(f"the class of {quote(name)} cannot be read")

    def _find_expression(self, file: Path, node: ast.expr) -> tuple[Path, ast.AST] | None:
        """Return the definition of `Name` or `module.Name`."""
        match node:
            case ast.Name(id=name):
                return self._find_definition(file, name)
            case ast.Attribute(value=owner, attr=name):
                module = self._find_module(file, owner)
                return self._find_definition(module, name) if module else None
        return None

    def _find_module(self, file: Path, node: ast.expr) -> Path | None:
        """Return the file of an imported module, such as `nn` or `torch.nn`."""
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        text = ".".join((node.id, *reversed(names)))
        for statement in _list_statements(self.parse(file).body):
            match statement:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        if text in (alias.asname, alias.name):
                            return find_module_file(alias.name, self.folders)
                case ast.ImportFrom(names=aliases):
                    for alias in aliases:
                        if text == (alias.asname or alias.name):
                            return self.find_imported(file, statement, alias.name)
        return None

    def _find_definition(self, file: Path, name: str) -> tuple[Path, ast.AST] | None:
        """Return the only statement that defines a name, in this file or by its imports."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            return None
        definitions: list[tuple[Path, ast.AST] | None] = []
        stars: list[ast.ImportFrom] = []
        for statement in _list_statements(self.parse(file).body):
            match statement:
                case ast.ClassDef() | ast.FunctionDef() if statement.name == name:
                    definitions.append((file, statement))
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if (
                    name in _list_targets(statement)
                ):
                    definitions.append((file, value))
                case ast.ImportFrom(names=aliases):
                    stars += (statement for alias in aliases if alias.name == "*")
                    names = [each.name for each in aliases if name == (each.asname or each.name)]
                    definitions += (self._find_in_module(file, statement, each) for each in names)
        if definitions:
            return definitions[0] if len(definitions) == 1 else None
        inner = (self._find_in_module(file, statement, name) for statement in stars)
        return next((each for each in inner if each), None)

    def _find_in_module(
        self, file: Path, statement: ast.ImportFrom, name: str
    ) -> tuple[Path, ast.AST] | None:
        module = self.find_imported(file, statement, "")
        return self._find_definition(module, name) if module else None

    def find_imported(self, file: Path, statement: ast.ImportFrom, name: str) -> Path | None:
        """Return the file of the module, or of its submodule `name`, in `from module import`."""
        parts = [*(statement.module or "").split("."), name]
        inner = [part for part in parts if part]
        if not statement.level:
            return find_module_file(".".join(inner), self.folders)
        folder = file.parents[statement.level - 1].joinpath(*inner)
        files = (folder / "__init__.py", folder.with_suffix(".py"))
        return next((each for each in files if is_file(each)), None)

    def parse(self, file: Path) -> ast.Module:
        if file not in self.files:
            self.files.append(file)
        try:
            return parse_python(_read(file))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            raise UnreadableForward(f"{file.name} cannot be read") from None


def _read(file: Path) -> bytes:
    return read_regular_file(file, TEXT_LIMIT, may_be_link=True)


def _list_statements(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also in branches, but not inside classes and functions."""
    for statement in statements:
        yield statement
        if not isinstance(statement, ast.ClassDef | _Function):
            for node in ast.iter_child_nodes(statement):
                inner = [node] if isinstance(node, ast.stmt) else getattr(node, "body", [])
                if isinstance(inner, list):
                    yield from _list_statements(inner)


def _walk_function(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)


def _find_value(value: ast.expr | None, nodes: Sequence[ast.AST]) -> ast.expr | None:
    """Return a returned value, or for a variable the value of its only assignment."""
    if not isinstance(value, ast.Name):
        return value
    assigned = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign) and value.id in _list_targets(node)
    ]
    return assigned[0] if len(assigned) == 1 else None


def _list_targets(statement: ast.AST) -> list[str]:
    match statement:
        case ast.Assign(targets=targets):
            nodes = (node for target in targets for node in ast.walk(target))
            return [node.id for node in nodes if isinstance(node, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


_MISSING = "needs the key 'name'"


def complete_input_names(entry: EffectiveSettings) -> EffectiveSettings:
    """Return the model with a name for each input; report inputs that can have none."""
    if not entry.has_valid("inputs") or all(table.name for table in entry.settings.inputs):
        return entry
    tables = list(entry.settings.inputs)
    for index, path in enumerate(list_call_paths(entry)):
        if tables[index].name:
            continue
        try:
            name = _find_name(entry, path)
        except UnreadableForward as error:
            entry.add_problem(("inputs", index), f"{_MISSING}: {error}; write the name")
            name = f"inputs[{index}]"
        tables[index] = tables[index].model_copy(update={"name": name})
    settings = entry.settings.model_copy(update={"inputs": tuple(tables)})
    return replace(entry, settings=settings)


def _find_name(entry: EffectiveSettings, path: str) -> str:
    if not path:
        raise UnreadableForward("the function of `inputs_from` creates the call")
    root, (step, *inner) = parse_call_path(path)
    if inner:
        raise UnreadableForward(f"{quote(path)} is inside a container")
    if root == "kwargs":
        return str(step)
    if not entry.has_valid("source"):
        raise UnreadableForward("the source is not valid")
    forward, position = _read_source(entry, entry.settings.source), int(step)
    names = forward.positional
    if position < len(names):
        return names[position]
    if forward.variadic:
        raise UnreadableForward(f"`forward` takes this position in *{forward.variadic}")
    available = f"only {join_words(names)}" if names else "no position"
    raise UnreadableForward(f"`forward` has {available}, so position {position} has no parameter")


def _read_source(entry: EffectiveSettings, source: str) -> ForwardParameters:
    """Return the parameters of `forward` of a source.

    Raises:
        UnreadableForward: If the source cannot be read without running it.
    """
    location, _, attribute = source.rpartition(":")
    if not location:
        raise UnreadableForward("a saved model has no parameters that can be read")
    if location.endswith(".py"):
        folder = entry.find_layer(("source",)).folder
        file = entry.project.find_file(posixpath.normpath(posixpath.join(folder, location)))
    else:
        file = find_module_file(location, entry.list_folders())
    if file is None:
        raise UnreadableForward(f"the source of {quote(location)} is not found")
    forward = read_forward(file, attribute, entry.list_folders())
    entry.project.files.update(forward.files)
    return forward
