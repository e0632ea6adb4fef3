"""The command `add`: an observation from a source and the sizes that a user names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest.syntax.python_source import (
    UnreadableForward,
    find_class,
    find_module_file,
    read_forward,
)
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.tools.recording.observation import Construction, Observation, ObservedTensor
from exporter.tools.recording.sources import ROOT_MARK

_CHILD = "exporter.tools.recording.child.call_description"
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
            raise _wrong(f"--input {text}: expected NAME=SIZES:DTYPE, such as image=2x3x224x224")
        name = match[1] or (parameters[index] if index < len(parameters) else f"input_{index}")
        is_positional = index < len(parameters) and parameters[index] == name
        is_positional &= all(each.at.startswith("args") for each in tensors)
        shape = [] if match[2] == "scalar" else [int(size) for size in match[2].split("x")]
        if parameters and not is_positional and name not in parameters:
            raise _wrong(f"--input {text}: `forward` has the parameters {', '.join(parameters)}")
        at = f"args[{index}]" if is_positional or not parameters else f"kwargs.{name}"
        dtype = match[3] or "float32"
        tensors.append(ObservedTensor(at=at, name=name, dtype=dtype, shape=tuple(shape)))
    if not tensors:
        names = " ".join(f"--input {name}=2x3" for name in parameters) or "--input x=2x3"
        raise _wrong(
            f"{source}: has no inputs; add {names} with its sizes, or --call FILE:FUNCTION"
        )
    return make_observation(construction, root, tensors=tuple(tensors))


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
    return make_observation(
        construction, root,
        tensors=call.tensors, constants=call.constants, containers=call.containers,
        problem=call.problem,
    )  # fmt: skip


def describe_configuration(
    source: str, config: Path, root: Path, environment: Mapping[str, str]
) -> Observation:
    """Return the observation of `transformers:Model` with a configuration file.

    Raises:
        ExporterError: MANIFEST if the source is wrong or the configuration does not fit.
    """
    module, _, name = source.partition(":")
    file = config.absolute()
    if module != "transformers" or not name.isidentifier():
        raise _wrong(f"{source}: --config needs a source of transformers, transformers:BertModel")
    if not file.is_file() or not file.is_relative_to(root):
        raise _wrong(f"{config}: is no file of the project; copy it there")
    arguments = {"name": name, "config": str(file), "names": ()}
    call = _call("describe_transformers", source, arguments, environment)
    path = f"str({ROOT_MARK} / {file.relative_to(root).as_posix()!r})"
    model = f"transformers.{name}"
    construction = Construction(
        module="transformers",
        name=name,
        init=None,
        code=f"{model}({model}.config_class.from_json_file({path}))",
        imports=("pathlib", "transformers"),
        reason="its configuration is a file",
    )
    return call.model_copy(update={"construction": construction})


def make_observation(construction: Construction, root: Path, **fields: Any) -> Observation:
    """Return the observation with the class of the source, as far as it can be read."""
    name, file = "", construction.file
    try:
        if file:
            path, name = find_class(Path(file), construction.name, [str(root)])
            file = str(path.resolve())
    except UnreadableForward:
        name = ""
    return Observation(class_name=name, class_file=file, construction=construction, **fields)


def _read_source(source: str, init: Sequence[str], root: Path) -> tuple[Construction, list[str]]:
    """Return the construction and the parameters of `forward`, which may be unknown."""
    location, _, name = source.rpartition(":")
    if not location or not name.isidentifier():
        raise _wrong(f"{source}: expected FILE.py:CLASS or package.module:CLASS")
    values: dict[str, Any] = {}
    for text in init:
        key, _, value = text.partition("=")
        try:
            values |= {key: tomli.loads(f"value = {value}")["value"]}
        except tomli.TOMLDecodeError:
            values[key] = value  # a text without quotes
    if location.endswith(".py"):
        file: Path | None = Path(location).absolute().resolve()
        if file is None or not file.is_file():
            raise _wrong(f"{location}: no such file; pass its path from this folder")
        if not file.is_relative_to(root):
            raise _wrong(f"{location}: is outside the project {root}; pass its folder with --root")
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
    return Construction(module=module, file=path, name=name, init=values), parameters


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
