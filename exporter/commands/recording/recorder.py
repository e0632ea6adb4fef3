"""Run a command with the observer, and prepare entries from its observations."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from exporter.commands.recording.entry import (
    DEFAULT_OPSET,
    choose_id,
    describe_missing_part,
    format_entry,
    format_generator,
    format_interface,
    name_part,
    update_entry,
)
from exporter.commands.recording.file_changes import FileChange, read_text
from exporter.commands.recording.observation import FileInterface, Observation, ProbeResult
from exporter.commands.recording.sources import Source, list_sources
from exporter.core.errors import ExitCode, ExporterError, Location
from exporter.core.files import CELL_LIMIT, TEXT_LIMIT, copy_file, read_regular_file
from exporter.core.text import format_requirement, pluralize
from exporter.manifest import ModelSpec, Project, StateNames
from exporter.manifest.loader import load_layers
from exporter.manifest.rules.invalid_entries import make_empty_spec
from exporter.manifest.rules.python_code import UnreadableForward, find_class
from exporter.manifest.syntax.python_source import find_module_file
from exporter.pipeline.toolchain_export import run_program
from exporter.processes.child_call import ChildFailure, call_in_child, describe_exit
from exporter.processes.worker_variables import make_worker_environment
from exporter.records.record import Record

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
        if "site-packages" not in checkout:
            paths.append(checkout)
        variables = {**environment, "PYTHONPATH": ":".join(filter(None, paths))}
        code = run_program(command, {**variables, "PYTHONUNBUFFERED": "1"}, on_line, seconds)
        calls = list(_read_observations(output))
        if calls and (count := len([*output.glob("*.missing")])):
            fix = f"run `pip install '{format_requirement('export')}'` there"
            processes = pluralize(count, "Python process", "Python processes")
            on_line(f"not observed: {processes} of the command without the exporter; {fix}")
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
    for path in output.glob("*.removed"):
        problem = "torch.onnx._export does not exist in the installed torch"
        location = read_regular_file(path, TEXT_LIMIT).decode("utf-8")
        return f"{location}: {problem}; call torch.onnx.export there{end}"
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
class TargetProject:
    """The project that gets the entries."""

    root: Path
    settings: Project
    environment: Mapping[str, str]
    taken: set[str] = field(default_factory=set)
    """The IDs of entries that exist."""

    @property
    def folder(self) -> Path:
        return self.root / self.settings.manifests[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEntry:
    """An entry that is not written yet."""

    id: str
    changes: tuple[FileChange, ...] = ()
    differences: dict[str, str] = field(default_factory=dict)
    """The keys of the existing entry that do not promise what the script exports."""
    problem: str = ""
    """Why there is no complete entry; "" if there is one."""
    note: str = ""
    """Why a part of a model has no entry; "" if each has one."""
    captured: tuple[Path, Path] | None = None
    """The weights of the script's run, and the file that gets them; None if a file has them."""
    drawn_weights: str = ""
    """The file with the initial weights of the script, which the entry draws again; "" if they are
    those of the entry."""


@contextmanager
def stage_entry(
    observation: Observation, project: TargetProject, existing: ModelSpec | None = None
) -> Iterator[tuple[PreparedEntry, tuple[ModelSpec, ...]]]:
    """Yield a probed entry, with its contracts in a temporary folder of the project for a proof.

    A model with an encoder has two. There is none if the entry has a problem.
    """
    build = project.root / project.settings.build
    is_new = not build.exists()
    build.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".record-", dir=build) as stage:
            yield _Draft.begin(observation, project, Path(stage), existing).prepare(observation)
    finally:
        if is_new:
            with suppress(OSError):  # not empty
                build.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """An entry that is tried in a temporary folder before its manifest is written."""

    id: str
    project: TargetProject
    stage: Path
    """The temporary folder; each trial replaces its manifest."""
    target: Path
    """The manifest that the entry is for."""
    existing: ModelSpec | None

    @classmethod
    def begin(
        cls,
        observation: Observation,
        project: TargetProject,
        stage: Path,
        existing: ModelSpec | None,
    ) -> _Draft:
        if existing:
            id, target = existing.id, project.root / existing.manifest
        else:
            id = choose_id(observation, project.taken)
            target = project.folder / f"{id}.toml"
        return cls(id=id, project=project, stage=stage, target=target, existing=existing)

    def prepare(self, observation: Observation) -> tuple[PreparedEntry, tuple[ModelSpec, ...]]:
        """Return the entry of the first source that builds the observed model."""
        finals = self._list_sources(observation, self.target.parent)
        staged = self._list_sources(observation, self.stage)
        if self.existing and self.existing.weights:
            weights = str(self.target.parent / self.existing.weights)
            update: dict[str, Any] = {"files": (*observation.files, weights)}
            if observation.kind == "source":
                update["weights"] = observation.weights or weights
            observation = observation.model_copy(update=update)
        if observation.generates:
            measured = self._measure(staged[0])
            if problem := measured.get("problem"):
                return PreparedEntry(id=self.id, problem=problem), ()
            if "parts" in measured:
                opsets = observation.opsets or (DEFAULT_OPSET,)
                return self._prepare_generator(staged[0], finals[0], measured, opsets)
            call = Observation.model_validate(measured["call"])
            fields = {"tensors": call.tensors, "constants": call.constants, "problem": call.problem}
            observation = observation.model_copy(update=fields)
        if observation.problem:
            return PreparedEntry(id=self.id, problem=observation.problem), ()
        problems = list[str]()
        for source, final in zip(staged, finals, strict=True):
            spec, probe = self._try_source(source, observation)
            if not isinstance(spec, str):
                prepared = self._write_changes(final, observation, probe)
                drawn = observation.state if probe.is_drawn else ""
                return replace(prepared, drawn_weights=drawn), (spec,)
            problems.append(spec.rstrip("."))
        # The first source is the model's own; a later one runs the script again.
        problems.append(observation.construction.reason or "no source was observed")
        problem = problems[0]
        if observation.has_trained:
            problem += "; the script trains before its export, so no export runs it again: move "
            problem += "the class, or a function that builds the model, to a module of its own"
        elif not finals:
            problem += "; move it to its module, or export in a script of the project, which an "
            problem += "entry can run again"
        return PreparedEntry(id=self.id, problem=problem), ()

    def _list_sources(self, observation: Observation, folder: Path) -> list[Source]:
        """Return the sources for a manifest in a folder, that of the existing entry first."""
        sources = [*list_sources(observation, self.id, self.project.root, folder)]
        if self.existing:
            text = self.existing.source
            if folder != self.target.parent and text.partition(":")[0].endswith(".py"):
                text = os.path.relpath(self.target.parent / text, folder)
            sources.insert(0, Source(text=text, init=self.existing.init))
        return sources

    def _try_source(
        self, source: Source, observation: Observation
    ) -> tuple[ModelSpec | str, ProbeResult]:
        """Return the contract with the measured facts, or why the source is not the model's."""
        draft = format_entry(self.id, observation, source, None, str(self.stage))
        of_script = bool(source.builder) or self._names_script(source, observation)
        probe = self._probe(self._load(self.id, draft, source), observation, of_script)
        if probe.problem:
            return probe.problem, probe
        if probe.difference:
            return f"{source.text} builds a model with {probe.difference}", probe
        if probe.weights and not Path(probe.weights).is_relative_to(self.project.root):
            weights = self.stage / _name_weights(self.id)
            weights.unlink(missing_ok=True)
            copy_file(Path(observation.state), weights)
            probe = probe.model_copy(
                update={"weights": str(weights), "weights_names": StateNames()}
            )
        draft = format_entry(self.id, observation, source, probe, str(self.stage))
        return self._load(self.id, draft, source), probe

    def _write_changes(
        self, source: Source, observation: Observation, probe: ProbeResult
    ) -> PreparedEntry:
        """Return the entry as the changes of the project's files."""
        captured = None
        if Path(probe.weights).is_relative_to(self.stage):
            weights = self.target.parent / _name_weights(self.id)
            captured = (Path(observation.state), weights)
            probe = probe.model_copy(update={"weights": str(weights)})
        text = format_entry(self.id, observation, source, probe, str(self.target.parent))
        before = None
        differences: dict[str, str] = {}
        if self.existing:
            before = read_text(self.target) or ""
            opsets = self.existing.opsets
            text, differences = update_entry(before, self.id, text, observation, opsets)
        changes = [FileChange(path=self.target, text=text, before=before)]
        if source.builder:
            path = self.target.parent / "models" / f"{self.id}.py"
            changes.append(FileChange(path=path, text=source.builder, before=read_text(path)))
        if captured and captured[1].exists() and not differences:
            differences["weights"] = f"the script's run has other values than {captured[1].name}"
        return PreparedEntry(
            id=self.id, changes=tuple(changes), captured=captured, differences=differences
        )

    def _measure(self, source: Source) -> dict[str, Any]:
        """Return the facts of `measure_source`."""
        self._load(self.id, "format = 1\n", source)  # writes the function of the source
        manifest = (self.stage / "entry.toml").relative_to(self.project.root).as_posix()
        spec = make_empty_spec(self.id, Location(file=manifest), ())
        spec = spec.model_copy(update={"source": source.text, "init": dict(source.init)})
        try:
            return _call("measure_source", {"spec": spec}, dict[str, Any], self.project)
        except ChildFailure as failure:
            return {"problem": f"the process of the model {failure}"}

    def _prepare_generator(
        self, staged: Source, final: Source, measured: Mapping[str, Any], opsets: Sequence[int]
    ) -> tuple[PreparedEntry, tuple[ModelSpec, ...]]:
        """Return the entry of each part of a model that generates, and their interfaces.

        `staged` and `final` are the source in the temporary folder and in that of the manifest.
        """
        texts = {self.target: format_generator(self.id, final, measured, opsets)}
        parts = measured["parts"]
        names = [name_part(self.id, part, parts) for part in parts]
        for name, part in zip(names, parts, strict=True):
            path = self.target.with_name(f"{name}.interface.toml")
            texts[path] = format_interface(self.id, measured, part)
            (self.stage / path.name).write_text(texts[path], encoding="utf-8")
        text = format_generator(self.id, staged, measured, opsets)
        loaded = [self._load(name, text, staged) for name in names]
        if problem := next((each for each in loaded if isinstance(each, str)), ""):
            return PreparedEntry(id=self.id, problem=problem), ()
        contracts = [each for each in loaded if isinstance(each, ModelSpec)]
        if final.builder:
            texts[self.target.parent / "models" / f"{self.id}.py"] = final.builder
        changes = [FileChange(path=p, text=text, before=read_text(p)) for p, text in texts.items()]
        note = describe_missing_part(measured)
        return PreparedEntry(id=self.id, changes=tuple(changes), note=note), tuple(contracts)

    def _load(self, id: str, text: str, source: Source) -> ModelSpec | str:
        """Return the contract of an entry in the temporary folder, or its problems."""
        (self.stage / "entry.toml").write_text(text, encoding="utf-8")
        (self.stage / "models").mkdir(exist_ok=True)
        if source.builder:
            (self.stage / "models" / f"{id}.py").write_text(source.builder, encoding="utf-8")
        root = self.project.root
        try:
            manifests = self.stage.relative_to(root).as_posix()
            return load_layers(root, manifests=manifests).manifest.find_model(id)
        except ExporterError as error:
            return "; ".join(problem.message for problem in error.problems)

    def _names_script(self, source: Source, observation: Observation) -> bool:
        name = source.text.partition(":")[0].removesuffix(".py").replace("/", ".")
        return name.rpartition(".")[2] == Path(observation.script.file).stem

    def _probe(
        self, spec: ModelSpec | str, observation: Observation, is_of_script: bool
    ) -> ProbeResult:
        """Return the facts about a model, or the problem of its entry."""
        if isinstance(spec, str):
            return ProbeResult(problem=spec)
        arguments = {"spec": spec, "observation": observation, "is_of_script": is_of_script}
        try:
            return _call("probe", arguments, ProbeResult, self.project)
        except ChildFailure as failure:
            return ProbeResult(problem=f"the process of the model {failure}")


def _name_weights(id: str) -> str:
    """Return the path below the manifest of weights that no file of the project has."""
    return f"models/{id}.pt"


def _call(
    function: str, arguments: Mapping[str, object], type: type[T], project: TargetProject
) -> T:
    """Return the result of a function of the module `probe` in a process of its own."""
    environment = make_worker_environment(project.environment, project.settings.environment)
    arguments = {**arguments, "root": str(project.root)}
    name = f"{_CHILD}.probe:{function}"
    return call_in_child(name, arguments, type, environment, seconds=_PROBE_SECONDS)


def read_file_interface(path: str, project: TargetProject) -> FileInterface:
    """Return the interface of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if it is not an ONNX file.
    """
    environment = make_worker_environment(project.environment, project.settings.environment)
    name = f"{_CHILD}.script_file:read_interface"
    try:
        return call_in_child(name, {"path": path}, FileInterface, environment)
    except ChildFailure as failure:
        raise ExporterError(ExitCode.UNREADABLE, f"its reader {failure}") from failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedEntry:
    """An entry with its verdicts, and the samples that PyTorch computed for them."""

    spec: ModelSpec
    records: Sequence[Record]
    build: Path
    """The build folder of the proof."""


def prove_script_file(
    file: ModelSpec, entry: ProvedEntry, project: TargetProject
) -> tuple[Record, ...]:
    """Return the verdict of a file of the script by the samples of its entry.

    `file`: The entry with the file as its artifact.

    Returns:
        Nothing if the verdict needs the model; see `prove_other_file`.
    """
    (opset,), (device,) = file.opsets, file.devices
    arguments = {
        "folder": str(entry.build / entry.spec.id),
        "spec": file,
        "path": file.find_artifact(opset),
        "opset": opset,
        "device": project.settings.find_device(device),
        "known": next((each for each in entry.records if each.cell.device == device), None),
    }
    environment = make_worker_environment(project.environment, project.settings.environment)
    name = "exporter.worker.recheck:prove_other_file"
    with suppress(ChildFailure):  # a worker finds and reports the reason
        return call_in_child(
            name, arguments, tuple[Record, ...], environment, seconds=_PROBE_SECONDS
        )
    return ()


def find_builders(
    observation: Observation, models: Iterable[ModelSpec], root: Path
) -> list[ModelSpec]:
    """Return the entries that build the class of an observation."""
    return [
        spec
        for spec in models
        if observation.class_file
        and _find_class(spec, root) == (observation.class_file, observation.class_name)
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
