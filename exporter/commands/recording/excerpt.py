"""Copy the statements of a script that define its model, without those that work."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.core.files import TEXT_LIMIT, read_regular_file
from exporter.manifest.syntax.python_source import list_names, parse_python

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_BLOCKS = (ast.If, ast.Try, ast.With)
#: Names with another value in another process than the script's.
_RUNTIME = frozenset({"argv", "parse_args", "parse_known_args", "environ", "getenv", "__file__"})
#: Functions whose result is no definition: the weights of a model come from a file of the entry.
_READERS = frozenset({"load", "load_state_dict"})
#: Ways to build the model that are tried, because each one starts a process.
_MAX_WAYS = 3


class NoExcerpt(Exception):
    """The statements of a script cannot be copied; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Statements as text."""

    imports: tuple[str, ...]
    definitions: tuple[str, ...]
    body: tuple[str, ...]
    """The statements that build the model."""
    result: str
    """The expression of the model."""


class Script:
    """The text of a script, and its statements.

    Args:
        package: The package for relative imports, or "".

    Raises:
        OSError, SyntaxError, ValueError, RecursionError, MemoryError: If it cannot be parsed.
    """

    def __init__(self, path: Path, package: str = "") -> None:
        content = read_regular_file(path, TEXT_LIMIT, may_be_link=True)
        self._name = path.name
        self._tree = parse_python(content)
        self._lines = content.decode("utf-8").split("\n")
        self._package = package

    def quote(self, code: str, module: str) -> Excerpt:
        """Return the definitions for an expression, whose names are in `module`.

        Raises:
            NoExcerpt: If a statement that it needs cannot be copied.
        """
        result = _remove_module(code, module)
        return self._complete((), result, _list_needed(result))

    def list_builds(self, line: int) -> Iterator[Excerpt]:
        """Yield the ways to build the model that the call of `export` in a line gets.

        If a name is assigned several times, such as `model = train(model)`, earlier ones follow.

        Raises:
            NoExcerpt: If the line has no such call, or a statement cannot be copied.
        """
        model, earlier, is_module = self._find_export(line)
        ways: list[frozenset[int]] = [frozenset()]
        tried = 0
        reason = ""
        while ways and tried < _MAX_WAYS:
            skipped = ways.pop(0)
            tried += 1
            body, needed, repeated = _slice(earlier, model, skipped, is_module=is_module)
            ways += [skipped | {each} for each in repeated]
            try:
                if any(_calls(each, _READERS) for each in body):
                    raise NoExcerpt("the model is read from a file")
                value = model
                if body and _assigns(body[-1], model):
                    value = body.pop().value  # type: ignore[attr-defined]
                texts = tuple(self._quote(each, is_moved=True) for each in body)
                yield self._complete(texts, ast.unparse(value), needed)
            except NoExcerpt as failure:
                reason = str(failure)
        if reason:
            raise NoExcerpt(reason)

    def _find_export(self, line: int) -> tuple[ast.expr, list[ast.stmt], bool]:
        """Return the model of a call, the statements before it, and whether they are global."""
        block, earlier, is_module = self._tree.body, list[ast.stmt](), True
        while True:
            statements = [each for each in block if each.lineno <= line <= (each.end_lineno or 0)]
            if not statements:
                raise NoExcerpt(f"{self._name}:{line} has no call of `export`")
            statement = statements[-1]
            if not isinstance(statement, ast.ClassDef):
                earlier += block[: block.index(statement)]
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = statement.args
                if arguments.args or arguments.kwonlyargs or arguments.vararg:
                    raise NoExcerpt(f"`{statement.name}` gets the model or its settings")
                earlier, is_module = [], False
            inner = [
                body
                for name in ("body", "orelse", "finalbody")
                for body in (getattr(statement, name, []),)
                if any(each.lineno <= line <= (each.end_lineno or 0) for each in body)
            ]
            if not inner:
                break
            block = inner[0]
        for node in ast.walk(statement):
            is_export = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("export")
            if is_export and isinstance(node, ast.Call):
                named = [each.value for each in node.keywords if each.arg == "model"]
                if model := next(iter([*node.args[:1], *named]), None):
                    return model, earlier, is_module
        raise NoExcerpt(f"{self._name}:{line} has no call of `export` with a model")

    def _complete(self, body: tuple[str, ...], result: str, needed: set[str]) -> Excerpt:
        """Return the statements with the global ones that they need, in the script's order."""
        used: list[ast.stmt] = []
        pending = sorted(needed)
        known = set[str]()
        while pending:
            name = pending.pop()
            if name in known:
                continue
            known.add(name)
            for statement in self._find_global(name):
                if statement not in used:
                    used.append(statement)
                    pending += _list_needed(self._quote(statement))
        used.sort(key=lambda each: each.lineno)
        is_import = [isinstance(each, ast.Import | ast.ImportFrom) for each in used]
        texts = [self._quote(each) for each in used]
        for text in (*texts, *body, result):
            for node in ast.walk(ast.parse(text)):
                name = getattr(node, "attr", getattr(node, "id", ""))
                if name in _RUNTIME:
                    raise NoExcerpt(f"{self._name} builds it from {name}")
        pairs = [*zip(is_import, texts, strict=True)]
        return Excerpt(
            imports=tuple(dict.fromkeys((*self._future, *(t for i, t in pairs if i)))),
            definitions=tuple(text for i, text in pairs if not i),
            body=body,
            result=result,
        )

    @property
    def _future(self) -> list[str]:
        tree = self._tree.body
        imports = [each for each in tree if isinstance(each, ast.ImportFrom)]
        return [self._quote(each) for each in imports if each.module == "__future__"]

    def _find_global(self, name: str) -> list[ast.stmt]:
        """Return the global statements that give a name its value."""
        binding = [each for each in self._tree.body if name in list_names([each])]
        if not binding:
            stars = (each for each in self._tree.body if isinstance(each, ast.ImportFrom))
            star_imports = [each for each in stars if each.names[0].name == "*"]
            return [] if hasattr(builtins, name) else list(star_imports)
        for statement in binding:
            if isinstance(statement, _BLOCKS) and not _is_definition(statement):
                raise NoExcerpt(f"{self._name}:{statement.lineno} computes {name}")
            if isinstance(statement, ast.For | ast.While):
                raise NoExcerpt(f"{self._name}:{statement.lineno} computes {name} in a loop")
        # A copy has one value of each name, and a class can have read another one.
        written = [each for each in binding if not isinstance(each, _DEFINITIONS)]
        is_global = name in {
            each
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Global)
            for each in node.names
        }
        is_changed = any(name in _list_changed(each) for each in self._tree.body)
        if is_global or is_changed or (written and len(binding) > 1):
            raise NoExcerpt(f"{self._name} changes {name}")
        return binding[-1:]

    def _quote(self, statement: ast.stmt, *, is_moved: bool = False) -> str:
        """Return the text of a statement, with its decorators and the comments above it.

        `is_moved`: It gets another indentation, which would change a text of several lines.
        """
        if isinstance(statement, ast.ImportFrom) and statement.level:
            parts = self._package.split(".")[
                : None if statement.level == 1 else 1 - statement.level
            ]
            if not self._package or not parts:
                raise NoExcerpt(f"{self._name}:{statement.lineno} is a relative import")
            module = ".".join([*parts, *filter(None, [statement.module])])
            return ast.unparse(ast.ImportFrom(module=module, names=statement.names, level=0))
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return ast.unparse(statement)
        decorators = getattr(statement, "decorator_list", [])
        start = min(each.lineno for each in (statement, *decorators))
        end = statement.end_lineno or start
        lines = self._lines[start - 1 : end]
        indent = re.match(r"\s*", lines[0])
        width = len(indent[0]) if indent else 0
        while start > 1 and re.match(rf"\s{{{width}}}#(?!!)", self._lines[start - 2]):
            start -= 1
        text = "\n".join(self._lines[start - 1 : end])
        dedented = re.sub(rf"^\s{{{width}}}", "", text, flags=re.MULTILINE) if width else text
        try:
            (parsed,) = ast.parse(dedented).body
            if ast.dump(parsed) == ast.dump(statement) and not (is_moved and _has_block(statement)):
                return dedented
        except (SyntaxError, ValueError):
            pass
        return ast.unparse(statement)  # several statements of one line, or lines of a text


def _slice(
    earlier: Sequence[ast.stmt], model: ast.expr, skipped: frozenset[int], *, is_module: bool
) -> tuple[list[ast.stmt], set[str], list[int]]:
    """Return the statements that a value needs, the other names, and repeated assignments."""
    needed = _list_needed(ast.unparse(model))
    names = [*list_names(earlier)]
    definitions = [
        each
        for each in earlier
        if isinstance(each, _DEFINITIONS)
        or (_is_constant(each) and all(names.count(name) == 1 for name in list_names([each])))
    ]
    body: list[ast.stmt] = []
    repeated: list[int] = []
    for index in reversed(range(len(earlier))):
        statement = earlier[index]
        if index in skipped or (is_module and statement in definitions):
            continue
        bound = {*list_names([statement])} & needed
        if not bound and not _list_changed(statement) & needed:
            continue
        body.insert(0, statement)
        values = _list_needed(ast.unparse(statement))
        if bound and isinstance(statement, (*_DEFINITIONS, ast.Assign)):
            needed -= bound
            earlier_names = {*list_names(earlier[:index])}
            if bound <= earlier_names and not isinstance(statement, _DEFINITIONS):
                repeated.append(index)
        needed |= values
    return body, needed, repeated


def _list_changed(statement: ast.stmt) -> set[str]:
    """Return the names whose attributes or items a statement sets."""
    names = set[str]()
    for node in ast.walk(statement):
        is_set = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
        owner: ast.AST = node
        while is_set and isinstance(owner, ast.Attribute | ast.Subscript):
            owner = owner.value
        if is_set and isinstance(owner, ast.Name):
            names.add(owner.id)
    return names


def _list_needed(text: str) -> set[str]:
    """Return the names that a statement or an expression takes from outside, also in functions."""
    needed = set[str]()

    def add(table: symtable.SymbolTable, *, is_top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_top or symbol.is_global()):
                needed.add(symbol.get_name())
        for child in table.get_children():
            add(child, is_top=False)

    add(symtable.symtable(text, "script", "exec"), is_top=True)
    return needed


def _is_definition(statement: ast.stmt) -> bool:
    """Return whether a block only chooses between definitions, as for an optional package."""
    if isinstance(statement, ast.If | ast.Try):
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            return False
        handlers = [inner for each in getattr(statement, "handlers", []) for inner in each.body]
        bodies = [*statement.body, *statement.orelse, *handlers]
        return all(map(_is_definition, [*bodies, *getattr(statement, "finalbody", [])]))
    return isinstance(statement, (*_DEFINITIONS, ast.Assign, ast.AnnAssign, ast.Pass, ast.Raise))


def _is_constant(statement: ast.stmt) -> bool:
    is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign)
    return is_assignment and not any(isinstance(each, ast.Call) for each in ast.walk(statement))


def _assigns(statement: ast.stmt, value: ast.expr) -> bool:
    """Return whether a statement gives its value to one name, which is `value`."""
    is_one = isinstance(statement, ast.Assign) and len(statement.targets) == 1
    return is_one and ast.unparse(statement.targets[0]) == ast.unparse(value)  # type: ignore[attr-defined]


def _has_block(statement: ast.stmt) -> bool:
    """Return whether a statement has a text of several lines."""
    texts = (each for each in ast.walk(statement) if isinstance(each, ast.Constant | ast.JoinedStr))
    return any(each.lineno != each.end_lineno for each in texts)


def _calls(statement: ast.stmt, names: frozenset[str]) -> bool:
    calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(ast.unparse(each.func).rpartition(".")[2] in names for each in calls)


def _remove_module(code: str, module: str) -> str:
    """Return an expression with `NAME` for `module.NAME`."""
    lines = code.split("\n")
    attributes = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module
    ]
    for node in sorted(attributes, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()
        end = node.end_col_offset or 0
        lines[node.lineno - 1] = (
            line[: node.col_offset] + node.attr.encode() + line[end:]
        ).decode()
    return "\n".join(lines)
