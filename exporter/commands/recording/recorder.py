"""Run a command with the observer, and prepare entries from its observations."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from exporter.commands.recording.entry import (
    choose_id,
    format_entry,
    format_generator,
    format_interface,
    name_part,
    update_entry,
)
from exporter.commands.recording.file_changes import FileChange, read_text
from exporter.commands.recording.observation import Observation, ProbeResult
from exporter.commands.recording.sources import Source, list_sources
from exporter.core.errors import ExitCode, ExporterError, Location
from exporter.core.files import CELL_LIMIT, TEXT_LIMIT, read_regular_file
from exporter.core.text import format_requirement
from exporter.manifest import ModelSpec, Project
from exporter.manifest.loader import load_layers
from exporter.manifest.rules.invalid_entries import make_empty_spec
from exporter.manifest.rules.python_code import UnreadableForward, find_class
from exporter.manifest.syntax.python_source import find_module_file
from exporter.pipeline.toolchain_export import run_program
from exporter.processes.child_call import ChildFailure, call_in_child, describe_exit
from exporter.processes.worker_variables import make_worker_environment

T = TypeVar("T")

_CHILD = "exporter.commands.recording.child"
#: Seconds for the runs of one model at all sizes.
_PROBE_SECONDS = 600.0
#: The class that a function of `record` builds.
_RECORDED = re.compile(r'^BUILDS = "([^"]+):([^":]+)"', re.MULTILINE)
_HOOK = """\
import importlib.machinery
import importlib.util
import os
import sys

folder = {folder!r}
sys.path[:] = [each for each in sys.path if each != folder]
# The environment may have such a module, too.
if spec := importlib.machinery.PathFinder.find_spec("sitecustomize"):
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
try:
    from exporter.commands.recording.child.observer import install

    install({output!r}, {model!r}, {package!r})
except ImportError:
    open(os.path.join({output!r}, str(os.getpid()) + ".missing"), "w").close()
"""


@contextmanager
def record_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    *,
    model: str = "",
    package: str = "",
    seconds: float | None = None,
) -> Iterator[tuple[list[Observation], int]]:
    """Run a command; yield the calls of its Python processes with their files, and its exit code.

    `model`: Observe the calls of this class, `FILE.py:Class` or `module:Class`, not exports.
    `package`: Observe the outermost calls of modules of this package.

    Raises:
        ExporterError: ENVIRONMENT if the command does not start; NOTHING_SELECTED without a call.
    """
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        message = f"{command[0]}: no such program; correct the command after `--`"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    scratch = tempfile.TemporaryDirectory(prefix="exporter-record-", ignore_cleanup_errors=True)
    with scratch as folder:  # a service of the command may still write to it
        hook, output = Path(folder, "hook"), Path(folder, "output")
        hook.mkdir()
        output.mkdir()
        text = _HOOK.format(folder=str(hook), output=str(output), model=model, package=package)
        (hook / "sitecustomize.py").write_text(text, encoding="utf-8")
        # The exporter may be on the path only because it was started in its folder.
        checkout = str(Path(__file__).parents[3])
        paths = [str(hook), environment.get("PYTHONPATH", "")]
        paths += [] if "site-packages" in checkout else [checkout]
        variables = {**environment, "PYTHONPATH": ":".join(filter(None, paths))}
        code = run_program(command, {**variables, "PYTHONUNBUFFERED": "1"}, on_line, seconds)
        calls = list(_read_observations(output))
        if not calls:
            raise ExporterError(ExitCode.NOTHING_SELECTED, _explain(output, code, model or package))
        yield calls, code


def _read_observations(folder: Path) -> Iterator[Observation]:
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for path in paths:
        try:
            yield Observation.model_validate_json(read_regular_file(path, CELL_LIMIT))
        except (ValidationError, OSError) as error:
            yield Observation(problem=f"the observation cannot be read: {str(error)[:300]}")


def _explain(output: Path, code: int, chosen: str) -> str:
    """Return why there is no observation, with the fix."""
    end = f"; the command {describe_exit(code)}" if code else ""
    if any(output.glob("*.missing")):
        fix = f"run `pip install '{format_requirement('export')}'` there"
        return f"the Python of the command has no exporter; {fix}{end}"
    if not any(output.glob("*.started")):
        return f"the command started no Python that reads PYTHONPATH; remove `-I` and `-E`{end}"
    if code:
        return f"no export was observed{end}; make it run without `exporter record` first"
    if chosen:
        return f"no call of {chosen} was observed; check the name"
    return (
        "the command made no call of torch.onnx.export; name a class with --model net.py:Net, or a "
        "package with --modules"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The project that gets the entries."""

    root: Path
    project: Project
    environment: Mapping[str, str]
    taken: set[str] = field(default_factory=set)
    """The IDs of entries that exist."""

    @property
    def folder(self) -> Path:
        return self.root / self.project.manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEntry:
    """An entry that is not written yet."""

    id: str
    changes: tuple[FileChange, ...] = ()
    differences: dict[str, str] = field(default_factory=dict)
    """The keys of the existing entry that do not promise what the script exports."""
    problem: str = ""
    """Why there is no complete entry; "" if there is one."""


@contextmanager
def stage_entry(
    observation: Observation, context: Context, existing: ModelSpec | None = None
) -> Iterator[tuple[PreparedEntry, tuple[ModelSpec, ...]]]:
    """Yield a probed entry, with its contracts in a temporary folder of the project for a proof.

    A model with an encoder has two. There is none if the entry has a problem.
    """
    build = context.root / context.project.build
    is_new = not build.exists()
    build.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".record-", dir=build) as folder:
            yield _prepare(observation, context, Path(folder), existing)
    finally:
        if is_new:
            with suppress(OSError):  # not empty
                build.rmdir()


def _prepare(
    observation: Observation, context: Context, stage: Path, existing: ModelSpec | None
) -> tuple[PreparedEntry, tuple[ModelSpec, ...]]:
    """Return the entry of the first source that builds the observed model."""
    id = existing.id if existing else choose_id(observation, context.taken)
    target = context.root / existing.manifest if existing else context.folder / f"{id}.toml"
    reason = observation.problem or observation.construction.reason or "no source was observed"
    finals = [*list_sources(observation, id, context.root, target.parent)]
    staged = [*list_sources(observation, id, context.root, stage)]
    if existing:
        weights = (str(target.parent / existing.weights),) if existing.weights else ()
        observation = observation.model_copy(update={"files": (*observation.files, *weights)})
        finals.insert(0, Source(text=existing.source, init=existing.init))
        text = existing.source
        if text.partition(":")[0].endswith(".py"):
            text = os.path.relpath(target.parent / text, stage)
        staged.insert(0, Source(text=text, init=existing.init))
    if observation.generates:
        measured = _measure(id, staged[0], stage, context)
        if problem := measured.get("problem"):
            return PreparedEntry(id=id, problem=problem), ()
        if "parts" in measured:
            return _prepare_generator(id, (staged[0], finals[0]), target, measured, context, stage)
        call = Observation.model_validate(measured["call"])
        fields = {"tensors": call.tensors, "constants": call.constants, "problem": call.problem}
        observation = observation.model_copy(update=fields)
    for source, final in zip(staged, finals, strict=True) if not observation.problem else ():
        draft = format_entry(id, observation, source, None, str(stage))
        spec = _load(id, draft, source, stage, context)
        probe = _probe(spec, observation, context)
        if probe.problem or probe.difference:
            reason = probe.problem or f"{source.text} builds a model with {probe.difference}"
            continue
        draft = format_entry(id, observation, source, probe, str(stage))
        spec = _load(id, draft, source, stage, context)
        if isinstance(spec, str):
            reason = spec
            continue
        text = format_entry(id, observation, final, probe, str(target.parent))
        before, differences = None, dict[str, str]()
        if existing:
            before = read_text(target) or ""
            text, differences = update_entry(before, id, text, observation, existing.opsets)
        changes = [FileChange(path=target, text=text, before=before)]
        if final.builder:
            path = target.parent / "models" / f"{id}.py"
            changes.append(FileChange(path=path, text=final.builder, before=read_text(path)))
        return PreparedEntry(id=id, changes=tuple(changes), differences=differences), (spec,)
    if not (finals or observation.problem):
        reason += "; move it to its module, or export in a script of the project"
    return PreparedEntry(id=id, problem=observation.problem or reason), ()


def _measure(id: str, staged: Source, stage: Path, context: Context) -> dict[str, Any]:
    """Return the facts of `measure_source`."""
    _load(id, "format = 1\n", staged, stage, context)  # writes the function of the source
    manifest = (stage / "entry.toml").relative_to(context.root).as_posix()
    spec = make_empty_spec(id, Location(file=manifest), ())
    spec = spec.model_copy(update={"source": staged.text, "init": dict(staged.init)})
    try:
        return _call("measure_source", {"spec": spec}, dict[str, Any], context)
    except ChildFailure as failure:
        return {"problem": f"the process of the model {failure}"}


def _prepare_generator(
    id: str,
    sources: tuple[Source, Source],
    target: Path,
    measured: Mapping[str, Any],
    context: Context,
    stage: Path,
) -> tuple[PreparedEntry, tuple[ModelSpec, ...]]:
    """Return the entry of each part of a model that generates, and their interfaces.

    `sources`: Those in the temporary folder `stage` and in the folder of `target`.
    """
    staged, final = sources
    texts = {target: format_generator(id, final, measured)}
    for part in measured["parts"]:
        name = f"{name_part(id, part)}.interface.toml"
        texts[target.with_name(name)] = format_interface(id, measured, part)
        (stage / name).write_text(texts[target.with_name(name)], encoding="utf-8")
    text = format_generator(id, staged, measured)
    names = [name_part(id, part) for part in measured["parts"]]
    loaded = [_load(name, text, staged, stage, context) for name in names]
    if problem := next((each for each in loaded if isinstance(each, str)), ""):
        return PreparedEntry(id=id, problem=problem), ()
    contracts = [each for each in loaded if isinstance(each, ModelSpec)]
    if final.builder:
        texts[target.parent / "models" / f"{id}.py"] = final.builder
    changes = [FileChange(path=p, text=text, before=read_text(p)) for p, text in texts.items()]
    return PreparedEntry(id=id, changes=tuple(changes)), tuple(contracts)


def _load(id: str, text: str, source: Source, stage: Path, context: Context) -> ModelSpec | str:
    """Return the contract of an entry in the temporary folder, or its problems."""
    (stage / "entry.toml").write_text(text, encoding="utf-8")
    (stage / "models").mkdir(exist_ok=True)
    if source.builder:
        (stage / "models" / f"{id}.py").write_text(source.builder, encoding="utf-8")
    try:
        folder = stage.relative_to(context.root).as_posix()
        return load_layers(context.root, manifests=folder).manifest.find_model(id)
    except ExporterError as error:
        return "; ".join(problem.message for problem in error.problems)


def _probe(spec: ModelSpec | str, observation: Observation, context: Context) -> ProbeResult:
    """Return the facts about a model, or the problem of its entry."""
    if isinstance(spec, str):
        return ProbeResult(problem=spec)
    try:
        return _call("probe", {"spec": spec, "observation": observation}, ProbeResult, context)
    except ChildFailure as failure:
        return ProbeResult(problem=f"the process of the model {failure}")


def _call(function: str, arguments: Mapping[str, object], type: type[T], context: Context) -> T:
    """Return the result of a function of the module `probe` in a process of its own."""
    environment = make_worker_environment(context.environment, context.project.environment)
    arguments = {**arguments, "root": str(context.root)}
    name = f"{_CHILD}.probe:{function}"
    return call_in_child(name, arguments, type, environment, seconds=_PROBE_SECONDS)


def find_builders(
    observation: Observation, models: Iterable[ModelSpec], root: Path
) -> list[ModelSpec]:
    """Return the entries that build the class of an observation."""
    return [
        spec
        for spec in models
        if _find_class(spec, root) == (observation.class_file, observation.class_name)
    ]


def _find_class(spec: ModelSpec, root: Path) -> tuple[str, str]:
    """Return the file and the class of an entry; empty if they cannot be read."""
    location, _, name = spec.source.rpartition(":")
    folder = (root / spec.manifest).parent
    folders = [str(folder), str(root)]
    is_file = location.endswith(".py")
    file = folder / location if is_file else find_module_file(location, folders)
    if file is None:
        return "", ""
    with suppress(OSError, ValueError, SyntaxError):
        text = read_regular_file(file, TEXT_LIMIT, may_be_link=True).decode()
        if written := _RECORDED.search(text):
            is_path = written[1].endswith(".py")
            builds = root / written[1] if is_path else find_module_file(written[1], folders)
            return str(builds.resolve()) if builds else "", written[2]
    try:
        file, name = find_class(file, name, folders)
        return str(file.resolve()), name
    except UnreadableForward:
        return "", ""
