"""The ways to build an observed model again: its class, or a small function in a file."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import tomli

from exporter.commands.recording.excerpt import Excerpt, NoExcerpt, Script
from exporter.commands.recording.observation import Construction, Observation, ObservedTensor
from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.core.files import PROJECT_LIMIT, TEXT_LIMIT, read_regular_file
from exporter.core.frozen_model import Plain
from exporter.core.text import join_names
from exporter.manifest.loader import RESERVED_IDS
from exporter.manifest.rules.python_code import UnreadableForward, find_class, read_forward
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.syntax.python_source import find_module_file, list_names, parse_python
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.report.pages.templates import render_script

#: The module of a script whose name no import finds, such as one with a hyphen.
_MAIN = "__main__"
_FUNCTION = "build"
#: Its name in a file with statements of a script, which may have such a function.
_FUNCTIONS = (_FUNCTION, "build_model", "build_exported_model")
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
    is_imported = Path(script.file).stem in construction.imports
    is_imported &= str(Path(script.file).parent) in construction.folders
    is_main = is_imported or script.file == construction.file
    has_class = bool(construction.name) and not (is_main and runs_at_import)
    if has_class:
        direct = None if construction.init is None else _refer(construction, root, folder)
        if direct and f"'{root}/" not in str(construction.init):
            yield Source(text=direct, init=construction.init or {})
        if _MAIN not in construction.imports:
            yield _write_code(observation, id, root, folder)
    elif construction.name:
        reason = f"an import of {Path(script.file).name} runs the script"
    inside = Path(script.file).is_relative_to(root) and script.file.endswith(".py")
    if observation.kind == "export" and inside:
        if has_class:
            reason = f"the arguments of {observation.label} do not give the exported model"
        yield from _copy_statements(observation, id, root, folder, reason, quotes=is_main)
        if not observation.has_trained:
            yield _write_script(observation, id, root, folder, reason)


def _is_own(file: str, root: Path) -> bool:
    """Return whether a file belongs to the project and to no installed package."""
    return Path(file).is_relative_to(root) and "site-packages" not in Path(file).parts


def _refer(construction: Construction, root: Path, folder: Path) -> str:
    """Return `module:Class` or `file.py:Class`, or "" for a module of a package elsewhere."""
    file, module = Path(construction.file), construction.module
    if not _is_own(construction.file, root):
        return f"{module}:{construction.name}"
    known = find_module_file(module, [str(root)])
    if known is not None and known.resolve() == file:
        return f"{module}:{construction.name}"
    if file.suffix != ".py" or "." in module:
        return ""
    return f"{Path(os.path.relpath(file, folder)).as_posix()}:{construction.name}"


def runs_code(script: Path) -> bool:
    """Return whether an import of a script would export, because no guard prevents it."""
    try:
        return _exports(parse_python(read_regular_file(script, TEXT_LIMIT, may_be_link=True)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _exports(tree: ast.Module) -> bool:
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
    code, reason = construction.code, construction.reason
    modules = {*construction.imports}
    if not code:
        code = _format_call(construction)
        modules = {construction.module}
    located = _locate_paths(code, root)
    if located != code:
        code, reason = located, reason or "an argument is a path of the project"
        modules.add("pathlib")
    inserted = _insert_folders(construction.folders, root, folder)
    imports = [f"import {module}" for module in sorted(modules)]
    reason = reason or "its imports need the folder of the script"
    if inserted:
        imports = ["import sys", "from pathlib import Path", "", *inserted, "", *imports]
    values = {"builds": _name_class(observation, root), "imports": "\n".join(imports)}
    values["code"] = _place_root(code, root, folder)
    return _render_source("recorded_code.py", id, reason, **values)


def _locate_paths(code: str, root: Path) -> str:
    """Return code with paths of the project below `ROOT_MARK`."""
    return re.sub(rf"'{re.escape(str(root))}/([^'\\]+)'", rf"str({ROOT_MARK} / '\1')", code)


def _place_root(code: str, root: Path, folder: Path) -> str:
    depth = len(PurePosixPath(os.path.relpath(folder / "models", root)).parts)
    return code.replace(ROOT_MARK, f"pathlib.{_PATH.format(depth=depth)}")


def _insert_folders(folders: Iterable[str], root: Path, folder: Path) -> list[str]:
    """Return the lines that add folders of the project to Python's path.

    A worker has the root; its line is for other programs, and changes no order.
    """
    depth = len(PurePosixPath(os.path.relpath(folder / "models", root)).parts)
    top = _PATH.format(depth=depth)
    inserted = []
    for each in folders:
        if Path(each) == root:
            inserted.append(f"sys.path.append(str({top}))  # the root of the project")
        elif _is_own(each, root):
            relative = Path(os.path.relpath(each, root)).as_posix()
            path = f'{top} / "{relative}"'
            inserted.append(f"sys.path.insert(0, str({path}))  # the folder of the script")
    return inserted


def _finds_module(text: str, root: Path) -> bool:
    """Return whether an import statement has a module below the root."""
    (statement,) = ast.parse(text).body
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    else:
        names = [each.name for each in getattr(statement, "names", ())]
    tops = (name.partition(".")[0] for name in names)
    return any((root / top).is_dir() or (root / f"{top}.py").is_file() for top in tops if top)


def _copy_statements(
    observation: Observation, id: str, root: Path, folder: Path, reason: str, *, quotes: bool
) -> Iterator[Source]:
    """Yield sources whose file has the statements of the script that define the model.

    `quotes`: The class is in the script itself, so the expression of the model is tried first.
    """
    construction, run = observation.construction, observation.script
    package = run.module if Path(run.file).stem == "__main__" else run.module.rpartition(".")[0]
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError, NoExcerpt):
        script = Script(Path(run.file), package)
        if construction.name and quotes:
            code = construction.code or _format_call(construction)
            with suppress(NoExcerpt):
                module = run.module or Path(run.file).stem
                module = _MAIN if _MAIN in construction.imports else module
                excerpt = script.quote(_locate_paths(code, root), module)
                yield _write_excerpt(excerpt, observation, id, root, folder, reason)
        for excerpt in script.list_builds(run.line):
            yield _write_excerpt(excerpt, observation, id, root, folder, reason)


def _format_call(construction: Construction) -> str:
    words = (f"{key}={value!r}" for key, value in (construction.init or {}).items())
    return f"{construction.module}.{construction.name}({', '.join(words)})"


def _write_excerpt(
    excerpt: Excerpt, observation: Observation, id: str, root: Path, folder: Path, reason: str
) -> Source:
    run = observation.script
    texts = [*excerpt.imports]
    code = _place_root(excerpt.result, root, folder)
    construction = observation.construction
    others = {name for name in construction.imports if f"{name}." in excerpt.result}
    known = {name for text in texts for name in list_names(ast.parse(text).body)}
    if code != excerpt.result:
        others.add("pathlib")
    texts += [f"import {name}" for name in sorted(others) if name.partition(".")[0] not in known]
    folders = [run.folder if run.module else str(Path(run.file).parent)]
    folders += sorted({*construction.folders} - {*folders}) if others else []
    if not any(_finds_module(text, root) for text in texts):
        folders = [each for each in folders if Path(each) != root]
    future = [text for text in texts if text.startswith("from __future__ ")]
    inserted = _insert_folders(folders, root, folder)
    if inserted:
        head = ["import sys", "from pathlib import Path", "", *inserted, ""]
        texts = [*future, *head, *(text for text in texts if text not in future)]
    defined = {name for text in excerpt.definitions for name in list_names(ast.parse(text).body)}
    function = next(name for name in _FUNCTIONS if name not in defined)
    return _render_source(
        "recorded_excerpt.py",
        id,
        reason,
        function=function,
        builds=_name_class(observation, root),
        script=run.module or Path(run.file).name,
        imports="\n".join(texts),
        definitions=excerpt.definitions,
        body=excerpt.body,
        code=code,
    )


def _render_source(
    template: str, id: str, reason: str, *, function: str = _FUNCTION, **values: Any
) -> Source:
    """Return a source whose function is in a file of its own."""
    text = render_script(f"new/{template}", id=id, reason=reason, function=function, **values)
    return Source(text=f"models/{id}.py:{function}", builder=f"{text.rstrip()}\n", reason=reason)


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
        relative = Path(os.path.relpath(path, root)).as_posix()
        return f"str(ROOT / {relative!r})"

    program = locate(script.file)
    arguments = (locate(each) if each.startswith("/") else repr(each) for each in script.arguments)
    if script.module:
        run = f'runpy.run_module({script.module!r}, run_name="__main__", alter_sys=True)'
        search = locate(script.folder)
    else:
        run = f'runpy.run_path({program}, run_name="__main__")'
        search = locate(str(Path(script.file).parent))
    return _render_source(
        "recorded_script.py",
        id,
        reason,
        builds=_name_class(observation, root),
        root=_PATH.format(depth=depth),
        arguments=f"[{', '.join(arguments)}]",
        script=script.module or Path(script.file).name,
        index=script.index,
        program=program,
        folder=search,
        start=locate(script.folder),
        run=run,
    )


_CHILD = "exporter.commands.recording.child.call_description"
_INPUT = re.compile(r"(?:([^\W\d]\w*)=)?([0-9]+(?:x[0-9]+)*|scalar)(?::(\w+))?")
_SECONDS = 300.0


def describe_source(
    source: str, inputs: Sequence[str], init: Sequence[str], root: Path
) -> Observation:
    """Return the observation of a source with inputs such as `image=2x3x224x224:float32`.

    Raises:
        ExporterError: MANIFEST if the source or an input is wrong.
    """
    construction, parameters = _read_source(source, init, root)
    tensors: list[ObservedTensor] = []
    for index, text in enumerate(inputs):
        match = _INPUT.fullmatch(text)
        if match is None:
            raise _wrong(
                f"--input {text}: expected NAME=SIZES:DTYPE, such as image=2x3x224x224; other "
                "arguments than tensors need --call FILE.py:FUNCTION"
            )
        name = match[1] or (parameters[index] if index < len(parameters) else f"input_{index}")
        is_positional = index < len(parameters) and parameters[index] == name
        is_positional &= all(each.at.startswith("args") for each in tensors)
        shape = [] if match[2] == "scalar" else [int(size) for size in match[2].split("x")]
        if parameters and not is_positional and name not in parameters:
            near = suggest_nearest(name, parameters)
            names = ", ".join(parameters)
            raise _wrong(
                f"--input {text}: `forward` has the parameters {names}{near}; arguments inside of "
                "another one need --call FILE.py:FUNCTION"
            )
        at = f"args[{index}]" if is_positional or not parameters else f"kwargs.{name}"
        dtype = match[3] or "float32"
        tensors.append(ObservedTensor(at=at, name=name, dtype=dtype, shape=tuple(shape)))
    if not tensors and parameters[:1] in ([], ["input_ids"], ["pixel_values"]):
        return _add_class(Observation(generates=True), construction, root)
    if not tensors:
        names = " ".join(f"--input {name}=2x3" for name in parameters) or "--input x=2x3"
        raise _wrong(
            f"{source}: has no inputs; add {names} with its sizes, or --call FILE.py:FUNCTION"
        )
    return _add_class(Observation(tensors=tuple(tensors)), construction, root)


def describe_with_function(
    source: str, function: str, init: Sequence[str], root: Path, environment: Mapping[str, str]
) -> Observation:
    """Return the observation of a source with the call that a function returns.

    Raises:
        ExporterError: MANIFEST if the source is wrong or the function fails.
    """
    construction, parameters = _read_source(source, init, root)
    arguments = {"function": function, "folder": str(root), "names": parameters}
    call = _call("describe_function", function, arguments, environment)
    return _add_class(call, construction, root)


def describe_configuration(
    source: str, config: Path, root: Path, environment: Mapping[str, str]
) -> Observation:
    """Return the observation of `transformers:Model` or a folder, with a configuration.

    Raises:
        ExporterError: MANIFEST if the source is wrong or the configuration does not fit.
    """
    file = config.absolute()
    file = file / "config.json" if file.is_dir() else file
    if not file.is_file() or not file.is_relative_to(root):
        raise _wrong(f"{os.path.relpath(file)}: is no file of the project; copy it there")
    named = source
    if Path(source).is_dir():
        with suppress(OSError, ValueError, LookupError, RecursionError, TypeError):  # no class
            table = json.loads(read_regular_file(file, TEXT_LIMIT, may_be_link=True))
            named = f"transformers:{table['architectures'][0]}"
    module, _, name = named.partition(":")
    if module != "transformers" or not name.isidentifier():
        message = "needs a class of transformers, such as `transformers:BertModel --config FOLDER`"
        raise _wrong(f"{source}: {message}")
    arguments = {"name": name, "config": str(file)}
    call = _call("describe_transformers", source, arguments, environment)
    model_id, is_trained = f"transformers.{name}", any(config.glob("*.safetensors"))
    path = file.parent if is_trained else file
    text = f"str({ROOT_MARK} / {path.relative_to(root).as_posix()!r})"
    code = f"{model_id}({model_id}.config_class.from_json_file({text}))"
    construction = Construction(
        module="transformers",
        name=name,
        init=None,
        code=f'{model_id}.from_pretrained({text}, dtype="float32")' if is_trained else code,
        imports=("pathlib", "transformers"),
        reason="its configuration is a file",
    )
    return call.model_copy(update={"construction": construction})


def choose_settings(weights: str, id: str, root: Path) -> dict[str, Any]:
    """Return the fields of an observation that the user chose by `--weights` and `--name`.

    Raises:
        ExporterError: MANIFEST if the file is not in the project, or the ID is invalid.
    """
    path = Path(weights).absolute()
    if weights and not path.is_file():
        raise _wrong(f"--weights {weights}: no such file; pass its path from this folder")
    if weights and not path.is_relative_to(root):
        raise _wrong(f"--weights {weights}: is outside the project {root}; copy it there")
    if id and (not re.fullmatch(ID_PATTERN, id) or id in RESERVED_IDS):
        near = re.sub(r"[^a-z0-9_.-]+", "-", id.casefold()).strip("-_.") or "net"
        raise _wrong(f"--name {id}: expected an ID of a-z, 0-9, `_`, `.` and `-`, such as {near}")
    return {"weights": str(path) if weights else "", "id": id}


#: What a message of PyTorch or of a constructor has if an option of `add` is missing.
_OPTIONS = (
    (r"__init__\(\) missing .*argument", "`--init NAME=VALUE` passes it to the class"),
    (
        r"missing .*argument",
        "`--input NAME=SIZES` passes a tensor, and `--call FILE.py:FUNCTION` any argument",
    ),
    (r"has no tensors by name", "`--weights` needs a state_dict or a safetensors file"),
    (r"weights of .* do not fit", "`--init NAME=VALUE` builds another size of the model"),
    (
        r"(?i)\b(scalar types?|dtype|long|int)\b.*\b(expected|got|float|long|found)\b",
        "`--input NAME=SIZES:DTYPE` has a dtype, such as ids=2x7:int64",
    ),
    (
        r"(?i)shapes?\b|sizes?\b|dimension|channels|features|dim\b",
        "correct the sizes of `--input`, or pass the whole call with `--call FILE.py:FUNCTION`",
    ),
)
_ANY_OPTION = "`--init` changes the model, `--input` and `--call FILE.py:FUNCTION` the call"


def name_option(problem: str, observation: Observation) -> str:
    """Return a problem as one line, with the option of `add` that repairs it."""
    text = " ".join(problem.split()).rstrip(".")
    if observation.generates:
        return f"{text}; `--call FILE.py:FUNCTION` passes the arguments of the model"
    known = (hint for pattern, hint in _OPTIONS if re.search(pattern, text))
    return f"{text}; {next(known, _ANY_OPTION)}"


def _add_class(call: Observation, construction: Construction, root: Path) -> Observation:
    """Return the observation with the class of the source, as far as it can be read."""
    name, file = "", construction.file
    with suppress(UnreadableForward):
        if file:
            path, name = find_class(Path(file), construction.name, [str(root)])
            file = str(path.resolve())
    fields = {"class_name": name, "class_file": file, "construction": construction}
    return call.model_copy(update=fields)


def _read_source(source: str, init: Sequence[str], root: Path) -> tuple[Construction, list[str]]:
    """Return the construction and the parameters of `forward`, which may be unknown."""
    location, _, name = source.rpartition(":")
    if not location or not name.isidentifier():
        names = _list_names(Path(source))
        known = f"; {source} defines {join_names(names)}" if names else ""
        raise _wrong(f"{source}: expected FILE.py:CLASS or package.module:CLASS{known}")
    if location.endswith(".ipynb"):
        raise _explain_notebook(location, name)
    values: dict[str, Any] = {}
    for text in init:
        key, _, value = text.partition("=")
        try:
            values |= {key: tomli.loads(f"value = {value}")["value"]}
        except tomli.TOMLDecodeError:
            values[key] = value  # a text without quotes
    folders: tuple[str, ...] = ()
    file: Path | None
    if location.endswith(".py"):
        file = Path(location).absolute().resolve()
        if not file.is_file():
            raise _wrong(f"{location}: no such file; pass its path from this folder")
        if not file.is_relative_to(root):
            raise _wrong(f"{location}: is outside the project {root}; pass its folder with --root")
        module, folders = file.stem, (str(file.parent),)
        if (file.parent / "__init__.py").is_file():  # its imports may be relative
            module = ".".join(file.relative_to(root).with_suffix("").parts)
    else:
        file, module = find_module_file(location, [str(root)]), location
    parameters: list[str] = []
    try:
        if file is not None:
            parameters = list(read_forward(file, name, [str(root)]).positional)
    except UnreadableForward as error:
        if "no definition" in str(error) and location.endswith(".py"):
            raise _wrong(f"{source}: {error}") from error
    path = str(file) if file else ""
    made = Construction(module=module, file=path, name=name, init=values, folders=folders)
    return made, parameters


def _explain_notebook(location: str, name: str) -> ExporterError:
    """Return the error for a class of a notebook, with the way to a module."""
    if not Path(location).is_file():
        return _wrong(f"{location}: no such file; pass its path from this folder")
    classes = _list_names(Path(location))
    if classes and name not in classes:
        near = suggest_nearest(name, classes) or f"; it has {join_names(classes)}"
        return _wrong(f"{location}: no cell defines {name}{near}")
    module = f"{re.sub(r'[^A-Za-z0-9_]', '_', Path(location).stem)}.py"
    return _wrong(
        f"{location}: a notebook is no module; begin the cell of the class and its imports "
        f"with `%%writefile {module}`, run it, then `exporter add {module}:{name}`"
    )


def _list_names(path: Path) -> list[str]:
    """Return the classes and functions of a file or of a notebook, as far as they can be read."""
    names: dict[str, None] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        content = read_regular_file(path, PROJECT_LIMIT)
        texts: list[str | bytes] = [content]
        if path.suffix == ".ipynb":
            cells = json.loads(content)["cells"]
            texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        for text in texts:
            with suppress(SyntaxError, ValueError):  # a magic
                for node in ast.parse(text).body:
                    if isinstance(node, ast.ClassDef | ast.FunctionDef):
                        names[node.name] = None
    return [*names]


def _call(
    function: str, subject: str, arguments: Mapping[str, object], environment: Mapping[str, str]
) -> Observation:
    try:
        return call_in_child(
            f"{_CHILD}:{function}", arguments, Observation, environment, seconds=_SECONDS
        )
    except ChildFailure as failure:
        raise _wrong(f"{subject}: the process {failure}") from failure


def _wrong(message: str) -> ExporterError:
    return ExporterError(ExitCode.MANIFEST, message)
