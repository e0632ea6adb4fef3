"""The ways to build an observed model again: its class, or a small function in a file."""

from __future__ import annotations

import ast
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from exporter.core.frozen_model import Plain
from exporter.manifest.syntax.python_source import find_module_file, parse_python
from exporter.report.pages.templates import render_script
from exporter.tools.recording.observation import Construction, Observation

_FUNCTION = "build"
#: In code, the folder of the project.
ROOT_MARK = "PROJECT_ROOT"
_PATH = "Path(__file__).parents[{depth}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The value of `source`, and the function that it names, if there is one."""

    text: str
    init: Mapping[str, Plain] = field(default_factory=dict)
    builder: str = ""
    """The text of the file with the function."""
    reason: str = ""
    """Why a function is necessary."""


def list_sources(observation: Observation, id: str, root: Path, folder: Path) -> Iterator[Source]:
    """Yield the possible sources, the simplest first.

    `id`: The ID of the entry, for the file of a function: `models/ID.py`.
    """
    construction, script = observation.construction, observation.script
    reason = construction.reason
    runs_at_import = bool(script.file) and runs_code(Path(script.file))
    is_main = script.file in (construction.file, *_list_files(construction, script.file))
    if construction.name and not (is_main and runs_at_import):
        direct = None if construction.init is None else _refer(construction, root, folder)
        if direct:
            yield Source(text=direct, init=construction.init or {})
        yield _write_code(observation, id, root, folder)
    elif construction.name:
        reason = f"an import of {Path(script.file).name} runs the script"
    inside = Path(script.file).is_relative_to(root) and script.file.endswith(".py")
    if observation.kind == "export" and inside:
        if construction.name and not runs_at_import:
            reason = f"the arguments of {observation.label} do not give the exported model"
        yield _write_script(observation, id, root, folder, reason)


def _list_files(construction: Construction, script: str) -> Iterator[str]:
    stem = Path(script).stem
    if stem in construction.imports and str(Path(script).parent) in construction.folders:
        yield script


def _is_own(file: str, root: Path) -> bool:
    """Return whether a file belongs to the project and to no installed package."""
    return Path(file).is_relative_to(root) and "site-packages" not in Path(file).parts


def _refer(construction: Construction, root: Path, folder: Path) -> str:
    """Return `module:Class` or `file.py:Class`, or "" if its imports need a folder."""
    file, module = Path(construction.file), construction.module
    if not _is_own(construction.file, root):
        return f"{module}:{construction.name}"
    known = find_module_file(module, [str(root)])
    if known is not None and known.resolve() == file:
        return f"{module}:{construction.name}"
    if file.suffix != ".py" or "." in module or _imports_neighbors(file, root):
        return ""
    return f"{Path(os.path.relpath(file, folder)).as_posix()}:{construction.name}"


def _imports_neighbors(file: Path, root: Path) -> bool:
    """Return whether a file imports modules of its folder, which only its script finds."""
    try:
        tree = parse_python(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    first = {name.partition(".")[0] for name in names if name}
    return any(
        (file.parent / f"{name}.py").exists() or (file.parent / name).is_dir()
        for name in first
        if find_module_file(name, [str(root)]) is None
    )


def runs_code(script: Path) -> bool:
    """Return whether an import of a script would export, because no guard prevents it."""
    try:
        tree = parse_python(script.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name == "export" or (name in functions and isinstance(statement, ast.Expr)):
                    return True
    return False


def _write_code(observation: Observation, id: str, root: Path, folder: Path) -> Source:
    """Return a source whose function evaluates the expression of the model."""
    construction = observation.construction
    code = construction.code
    modules = {*construction.imports}
    if not code:
        words = ", ".join(f"{key}={value!r}" for key, value in (construction.init or {}).items())
        code = f"{construction.module}.{construction.name}({words})"
        modules = {construction.module}
    depth = len(PurePosixPath(os.path.relpath(folder / "models", root)).parts)
    inserted = []
    for each in construction.folders:
        if Path(each) != root and _is_own(each, root):
            relative = Path(os.path.relpath(each, root)).as_posix()
            path = f'{_PATH.format(depth=depth)} / "{relative}"'
            inserted.append(f"sys.path.insert(0, str({path}))  # the folder of the script")
    imports = [f"import {module}" for module in sorted(modules)]
    reason = construction.reason or "its imports need the folder of the script"
    if inserted:
        imports = ["import sys", "from pathlib import Path", "", *inserted, "", *imports]
    text = render_script(
        "new/recorded_code.py",
        id=id,
        imports="\n".join(imports),
        builds=_name_class(observation, root),
        code=code.replace(ROOT_MARK, f"pathlib.{_PATH.format(depth=depth)}"),
        reason=reason,
    )
    return Source(text=f"models/{id}.py:{_FUNCTION}", builder=f"{text.rstrip()}\n", reason=reason)


def _name_class(observation: Observation, root: Path) -> str:
    """Return `file.py:Class`, or `package.module:Class` of an installed package."""
    _, is_installed, path = observation.class_file.partition("/site-packages/")
    if is_installed:
        location = path.removesuffix(".py").replace("/", ".")
    else:
        location = Path(os.path.relpath(observation.class_file or root, root)).as_posix()
    return f"{location}:{observation.class_name}"


def _write_script(
    observation: Observation, id: str, root: Path, folder: Path, reason: str
) -> Source:
    """Return a source whose function runs the script up to the export."""
    script = observation.script
    depth = len(PurePosixPath(os.path.relpath(folder / "models", root)).parts)

    def locate(path: str) -> str:
        if not Path(path).is_relative_to(root):
            return repr(path)
        relative = Path(os.path.relpath(path, root)).as_posix()
        return f"str(ROOT / {relative!r})"

    program = locate(script.file)
    if script.module:
        run = f'runpy.run_module({script.module!r}, run_name="__main__", alter_sys=True)'
        search = locate(script.folder)
    else:
        run = f'runpy.run_path({program}, run_name="__main__")'
        search = locate(str(Path(script.file).parent))
    text = render_script(
        "new/recorded_script.py",
        id=id,
        builds=_name_class(observation, root),
        root=_PATH.format(depth=depth),
        arguments=repr(list(script.arguments)),
        script=script.module or Path(script.file).name,
        reason="\n    ".join(textwrap.wrap(f"Reason: {reason}", 88)),
        index=script.index,
        program=program,
        folder=search,
        start=locate(script.folder),
        run=run,
    )
    return Source(text=f"models/{id}.py:{_FUNCTION}", builder=f"{text.rstrip()}\n", reason=reason)
