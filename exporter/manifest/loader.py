"""Load a project: read all files, resolve all models, and report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError, Location, Problem, suggest_nearest
from exporter.core.toml_table import SETTINGS_KEYS
from exporter.manifest import project_settings
from exporter.manifest.project_settings import ProjectSettings
from exporter.manifest.resolved.call import Constant, Fill, Input
from exporter.manifest.resolved.keys import Keys
from exporter.manifest.resolved.model import Comparator, Expectation, ModelSpec, Output, Skip
from exporter.manifest.resolved.project import Manifest, Project
from exporter.manifest.rules import (
    descriptions,
    fills,
    finished_sources,
    generate,
    option_rules,
    passes,
    python_code,
    repeated_tables,
    rollout,
    signature,
    sources,
)
from exporter.manifest.rules.axes import check_shared_axes, resolve_axes
from exporter.manifest.rules.call_rules import resolve_call_paths, resolve_containers
from exporter.manifest.rules.chain import resolve_chains
from exporter.manifest.rules.custom_op_rules import resolve_custom_ops
from exporter.manifest.rules.inheritance import InheritanceGraph, InheritedEntry
from exporter.manifest.rules.input_cases import resolve_cases
from exporter.manifest.rules.invalid_entries import list_unreadable, make_invalid_spec
from exporter.manifest.rules.invalid_tables import EXAMPLES
from exporter.manifest.rules.layers import (
    EffectiveSettings,
    ProjectFacts,
    merge_layers,
    resolve_conditions,
    resolve_tolerance,
)
from exporter.manifest.rules.output_rules import resolve_comparators
from exporter.manifest.rules.validation import (
    INTERFACE,
    ManifestFile,
    validate_manifest,
)
from exporter.manifest.schema.entry import ID_PATTERN, ModelEntry, Settings
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile, read_toml
from exporter.manifest.syntax.values import KeyPath, quote

#: Other places for a required key.
_OTHER_PLACES = {"opsets": " here, in [defaults] or in [tool.exporter.defaults]"}
#: The rules of keys, which run if the value of the key is valid. The spec takes others of `Keys`.
_RESOLVERS: Mapping[str, Callable[[EffectiveSettings], object]] = {
    "devices": project_settings.add_consumer_devices,
    "source": lambda entry: entry.check_source(("source",), entry.settings.source),
    "weights": sources.resolve_weights,
    "lacks_weights": sources.lacks_weights,
    "weights_names": sources.resolve_weights_names,
    "weights_sha256": sources.resolve_weights_hash,
    "artifact": finished_sources.resolve_artifact,
    "expect": lambda entry: resolve_conditions(entry, "expect", Expectation),
    "skip": lambda entry: resolve_conditions(entry, "skip", Skip),
    "parameters": sources.resolve_parameters,
    "options": option_rules.resolve_options,
    "custom_ops": resolve_custom_ops,
    "overrides": option_rules.resolve_overrides,
    "depends": sources.resolve_depends,
    "callers": sources.resolve_callers,
    "metadata": descriptions.resolve_metadata,
    "tolerance": lambda entry: resolve_tolerance(entry, ("tolerance",), entry.settings.tolerance),
    "containers": resolve_containers,
    "inputs_from": lambda entry: fills.resolve_inputs_from(
        entry, ("inputs_from",), entry.settings.inputs_from
    ),
}
#: The rules of keys that are resolved together; they run if a layer sets one of the keys.
_JOINT_RULES: Sequence[tuple[Sequence[str], Callable[[EffectiveSettings], Mapping[str, Any]]]] = (
    (("generate",), generate.resolve),
    (("generate", "rollout", "tokens"), rollout.resolve),
    (("passes",), passes.resolve),
)


def resolve_model(entry: EffectiveSettings) -> ModelSpec:
    """Return the spec of the model; if it has a problem, one with its problems."""
    settings = entry.settings
    _check_required_keys(entry)
    _check_devices(entry)
    fields: dict[str, Any] = {key: getattr(settings, key) for key in Keys.model_fields}
    fields |= {key: rule(entry) for key, rule in _RESOLVERS.items() if entry.has_valid(key)}
    for keys, rule in _JOINT_RULES:
        if any((key,) in entry.origins for key in keys):
            fields |= rule(entry)
    for key in Keys.model_fields:
        if isinstance(value := fields[key], Table) and entry.has_valid(key):
            fields[key] = entry.check_functions((key,), value)
    fields |= _resolve_signature(entry)
    if entry.report or entry.broken:
        return make_invalid_spec(entry)
    return ModelSpec(
        id=entry.id,
        manifest=entry.own_layer.file.name,
        line=entry.own_layer.file.lines[entry.own_layer.path],
        was=_list_former_ids(entry),
        constants=tuple(Constant(at=each.at, value=each.value) for each in settings.constants),
        **fields,
    )


def _resolve_signature(entry: EffectiveSettings) -> dict[str, Any]:
    """Return inputs, outputs, axes and cases, or {} if one of them is invalid."""
    settings = entry.settings
    if entry.has_valid("inputs"):
        values = [
            _resolve_fill(entry, ("inputs", index), table)
            for index, table in enumerate(settings.inputs)
        ]
        call_paths = resolve_call_paths(entry)
    if entry.has_valid("outputs"):
        tolerances = [
            resolve_tolerance(entry, ("outputs", index, "tolerance"), table.tolerance)
            if table.tolerance
            else None
            for index, table in enumerate(settings.outputs)
        ]
    if not entry.has_valid("inputs", "outputs"):
        return {}
    shapes = {shape.path: shape for shape in signature.resolve_shapes(entry)}
    fills.check_fills(entry, shapes)
    comparators: Sequence[Comparator | None] = [None] * len(settings.outputs)
    if any(table.compare is not None or table.masked_by for table in settings.outputs):
        comparators = resolve_comparators(entry, shapes)
    preprocess = [
        descriptions.resolve_preprocess(entry, index, shapes["inputs", index].dims)
        for index in range(len(settings.inputs))
        if ("inputs", index) in shapes
    ]
    labels = [
        descriptions.resolve_labels(
            entry,
            index,
            shapes["outputs", index].dims,
            signature.resolve_dtype(settings, table),
        )
        for index, table in enumerate(settings.outputs)
        if ("outputs", index) in shapes
    ]
    axes = resolve_axes(entry, tuple(shapes.values()))
    has_cases = entry.has_valid("cases") and settings.cases
    cases = resolve_cases(entry, axes) if has_cases else ()
    if entry.report:
        return {}
    inputs = tuple(
        Input.from_fields(
            table,
            shape=shapes["inputs", index].dims,
            dtype=signature.resolve_dtype(settings, table),
            at=call_paths[index],
            fill=values[index],
            preprocess=preprocess[index],
        )
        for index, table in enumerate(settings.inputs)
    )
    outputs = tuple(
        Output.from_fields(
            table,
            shape=shapes["outputs", index].dims,
            dtype=signature.resolve_dtype(settings, table),
            tolerance=tolerances[index],
            compare=comparators[index],
            masked_by=table.masked_by or "",
            labels=labels[index],
        )
        for index, table in enumerate(settings.outputs)
    )
    return {
        "inputs": inputs,
        "outputs": outputs,
        "axes": axes,
        "cases": cases,
    }


def _resolve_fill(entry: EffectiveSettings, key_path: KeyPath, table: InputTable) -> Fill:
    """Return the fill of an input; without one, a function of `inputs_from` draws the values."""
    has_function = entry.settings.inputs_from or not entry.has_valid("inputs_from")
    if has_function and "fill" not in table.model_fields_set:
        return Fill(kind="function")
    return fills.resolve_fill(
        entry, (*key_path, "fill"), table.fill, signature.resolve_dtype(entry.settings, table)
    )


def _check_required_keys(entry: EffectiveSettings) -> None:
    settings = entry.settings
    for key in Settings.required:
        if (key,) not in entry.origins and key not in entry.broken:
            choice = _OTHER_PLACES.get(key, "")
            message = f"needs the key '{key}'{choice}; add `{key} = {EXAMPLES[key]}`"
            entry.report.add(entry.own_layer.file.build_problem(entry.own_layer.path, message))
    is_generator = settings.exporter == "transformers" and entry.has_valid("exporter", "generate")
    if is_generator and not settings.generate:
        message = "needs the key `generate`, such as `generate = { steps = 32 }`"
        entry.add_problem(("exporter",), message)


def _check_devices(entry: EffectiveSettings) -> None:
    """Report unknown devices, except those of `[tool.exporter]`, which are already checked."""
    if entry.has_valid("devices") and entry.find_layer(("devices",)).path[0] != "tool":
        names, devices = entry.settings.devices, entry.project.devices
        for index, message in project_settings.find_device_problems(names, devices):
            entry.add_problem(("devices", index), message)


_ID_RULE = "expected an ID of up to 100 of a-z, 0-9, '_', '.' and '-' that begins with a-z or 0-9"
#: Names in the build folder that are not folders of models.
RESERVED_IDS = frozenset(
    {"results.json", "stamps.json", "reports.json", "untouched.json", "shard.json"}
    | {"source-stamps.json", "store.json"}
    | {"gate.md", "comment.md", "repro"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProject:
    """A project with the origins of its settings."""

    manifest: Manifest
    layers: Mapping[str, EffectiveSettings]
    """The settings of each model with their origins, by ID."""
    files: frozenset[Path]
    """Every file that an entry names."""


def load_project(
    root: Path,
    fallback_root: Path | None = None,
    *,
    keep_invalid: bool = False,
    initial_weights: bool = False,
) -> Manifest:
    """Return the manifest of a project; see `load_layers`."""
    return load_layers(
        root, fallback_root, keep_invalid=keep_invalid, initial_weights=initial_weights
    ).manifest


def load_settings(root: Path) -> Project:
    """Return the settings of a project without its manifests; see `load_layers`.

    Raises:
        ExporterError: MANIFEST, with every problem of `[tool.exporter]`.
    """
    report = ProblemCollector()
    project = project_settings.read_project(root.absolute(), report).project
    if report:
        raise ExporterError(ExitCode.MANIFEST, report.list_problems())
    return project


def load_layers(
    root: Path,
    fallback_root: Path | None = None,
    *,
    keep_invalid: bool = False,
    manifests: str = "",
    initial_weights: bool = False,
) -> LoadedProject:
    """Read `[tool.exporter]` of pyproject.toml and every manifest of the project.

    Args:
        root: The project's root; paths in messages are relative to it.
        fallback_root: The work tree if `root` is a revision, for the files that it lacks.
        keep_invalid: Return an invalid entry as a model with `problems`, and the problems of files
            in `Manifest.problems`, instead of an error.
        manifests: Another folder than that of the settings, for entries that are not written yet.
        initial_weights: Accept a missing file of weights that git ignores; the model then keeps its
            initial values, and its spec says so.

    Raises:
        ExporterError: MANIFEST, with every problem of every file. If `keep_invalid` is set: only if
            `[tool.exporter]` has a problem, or if no file has a readable entry.
    """
    root = root.absolute()
    problems = _Problems()
    settings = project_settings.read_project(root, problems.of_settings)
    if fallback_root is None:  # a revision may require another version
        project_settings.check_version(settings, problems.of_settings)
    folders = (manifests,) if manifests else settings.project.manifests
    files = tuple(
        file
        for each in folders
        for file in _read_manifests(root, each, settings.file, problems.of_files)
    )
    graph = InheritanceGraph()
    for file in files:
        graph.add(file)
    if not manifests:
        ids = {entry.id for entry in graph.entries}
        project_settings.check_gate(settings, ids, problems.of_settings)
    project = ProjectFacts(
        root,
        fallback_root,
        devices=settings.project.device_names,
        pinned=project_settings.list_pinned_devices(settings.project.devices),
        uses_initial_weights=initial_weights,
    )
    entries = _merge_entries(graph, settings, project)
    for file in files:
        check_shared_axes(file.defaults, entries)
    _check_former_ids(graph, entries)
    specs = resolve_chains(entries, [resolve_model(entry) for entry in entries])
    invalid_ids = _find_invalid_ids(graph)
    problems.include_entries(entries, invalid_ids)
    if files and not graph.entries and not problems:
        message = "no manifest has a [models.ID]; add one"
        problems.of_files.add(Problem(message=message, location=Location(file=folders[0])))
    models = _keep_valid_ids(files, specs, invalid_ids)
    may_return = keep_invalid and models
    if problems.of_settings or (problems.of_files and not may_return):
        raise problems.make_error()
    return LoadedProject(
        manifest=Manifest(
            project=settings.project,
            models=models,
            problems=problems.list_without(models),
            missing_files={name: tuple(ids) for name, ids in project.missing_files.items()},
        ),
        layers={entry.id: entry for entry in reversed(entries)},
        files=frozenset(filter(None, (*project.files, settings.package_file))),
    )


@dataclass(frozen=True, slots=True)
class _Problems:
    """The problems of a project, those of its settings first."""

    of_settings: ProblemCollector = field(default_factory=ProblemCollector)
    of_files: ProblemCollector = field(default_factory=ProblemCollector)

    def __bool__(self) -> bool:
        return bool(self.of_settings or self.of_files)

    def include_entries(
        self,
        entries: Iterable[EffectiveSettings],
        invalid_ids: Mapping[str, tuple[Problem, ...]],
    ) -> None:
        for entry in entries:
            self.of_files.include(entry.report)
        for problem in chain.from_iterable(invalid_ids.values()):
            self.of_files.add(problem)

    def make_error(self) -> ExporterError:
        both = ProblemCollector()
        both.include(self.of_settings)
        both.include(self.of_files)
        return ExporterError(ExitCode.MANIFEST, both.list_problems())

    def list_without(self, models: Iterable[ModelSpec]) -> tuple[Problem, ...]:
        """Return the problems of files that no model has."""
        of_models = {text for model in models for text in model.problems}
        others = ProblemCollector()
        for problem in self.of_files:
            if str(problem) not in of_models:
                others.add(problem)
        return others.list_problems()


def _merge_entries(
    graph: InheritanceGraph, settings: ProjectSettings, project_facts: ProjectFacts
) -> list[EffectiveSettings]:
    """Return each entry over all layers below it, with its copies of repeated tables."""
    project_layer = [each for each in (settings.package_layer, settings.layer) if each]
    entries = []
    for inherited in graph.entries:
        report = ProblemCollector()
        layers = (*project_layer, *graph.add_interfaces(inherited, report))
        merged = merge_layers(inherited.id, layers, report, project_facts)
        expanded = repeated_tables.expand_repeats(merged)
        entries.append(python_code.complete_input_names(expanded))
    return entries


def list_manifests(folder: Path) -> list[Path]:
    """Return every manifest below a folder, sorted by path, without hidden files and folders."""
    return sorted(
        path
        for path in folder.rglob("*.toml")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _read_manifests(
    root: Path, folder: str, settings_file: TomlFile | None, report: ProblemCollector
) -> Iterator[ManifestFile]:
    """Yield every manifest and every interface below the folder."""
    base = root / folder
    paths = list_manifests(base)
    if not paths:
        report.add(_describe_empty_folder(base, folder, settings_file))
    for path in paths:
        name = path.relative_to(root).as_posix()
        if not name.isprintable():  # such a name can be neither printed nor stored
            message = f"contains a file with an unprintable name, {quote(name)}; rename it"
            report.add(Problem(message=message, location=Location(file=folder)))
            continue
        file = read_toml(path, name)
        if isinstance(file, Problem):
            report.add(file)
        elif name.endswith(INTERFACE):
            yield generate.validate_interface(file, report)
        else:
            yield validate_manifest(file, report)


def _describe_empty_folder(base: Path, folder: str, settings_file: TomlFile | None) -> Problem:
    """Return a problem at the setting that names the folder, or with the commands that fill it."""
    key = (*SETTINGS_KEYS, "manifests")
    if settings_file and key in settings_file.lines:
        problem = "contains no manifest (*.toml)" if base.is_dir() else "does not exist"
        names = [each.name for each in base.parent.iterdir()] if base.parent.is_dir() else []
        hint = "" if base.is_dir() else suggest_nearest(base.name, names)
        message = f"the folder {quote(folder)} {problem}{hint or _FILLED_BY}"
        return settings_file.build_problem(key, message)
    problem = "contains no manifest (*.toml)" if base.is_dir() else "the folder does not exist"
    message = f"{problem}{_FILLED_BY}; in another folder, pass that of the project with --root"
    return Problem(message=message, location=Location(file=folder))


_FILLED_BY = (
    "; `exporter record -- python export.py` writes entries from your script, `exporter add` from "
    "a class, and `exporter init` an example"
)


def _list_former_ids(entry: EffectiveSettings) -> tuple[str, ...]:
    table = entry.own_layer.table
    return table.was if isinstance(table, ModelEntry) else ()


def _check_former_ids(graph: InheritanceGraph, entries: Iterable[EffectiveSettings]) -> None:
    """Report each `was` that names an entry, or that another entry has, too."""
    layers = {each.id: each.own_layer for each in reversed(graph.entries)}
    owners: dict[str, EffectiveSettings] = {}
    for entry in entries:
        layer = entry.own_layer
        for former in _list_former_ids(entry):
            if former in layers:
                message = f"{quote(former)} is an entry, so it was not renamed; remove `was`"
                other = layers[former]
            elif owners.setdefault(former, entry) is not entry:
                message = f"{quote(former)} can have one new ID; remove one `was`"
                other = owners[former].own_layer
            else:
                continue
            location = f"{other.file.name}:{other.file.lines[other.path]}"
            problem = layer.file.build_problem((*layer.path, "was"), f"{message} ({location})")
            entry.report.add(problem)


def _keep_valid_ids(
    files: Iterable[ManifestFile],
    specs: Iterable[ModelSpec],
    invalid_ids: Mapping[str, tuple[Problem, ...]],
) -> tuple[ModelSpec, ...]:
    """Return one spec for each ID that can name a folder, with the problems of the ID."""
    unreadable: list[ModelSpec] = []
    for file in (each for each in files if each.unreadable):
        unreadable += list_unreadable(file)
    by_id: dict[str, ModelSpec] = {}
    for spec in (*specs, *unreadable):
        if not re.fullmatch(ID_PATTERN, spec.id) or spec.id in RESERVED_IDS:
            continue
        texts = [str(problem) for problem in invalid_ids.get(spec.id, ())]
        earlier = by_id.get(spec.id)
        if earlier:
            texts += earlier.problems
        problems = tuple(dict.fromkeys((*texts, *spec.problems)))
        by_id[spec.id] = (earlier or spec).model_copy(update={"problems": problems})
    return tuple(by_id.values())


def _find_invalid_ids(graph: InheritanceGraph) -> dict[str, tuple[Problem, ...]]:
    """Return problems by ID: malformed, reserved, or equal to another one if case is ignored."""
    owners: dict[str, InheritedEntry] = {}
    problems_by_id: dict[str, tuple[Problem, ...]] = {}

    def add(inherited: InheritedEntry, message: str) -> None:
        problem = inherited.own_layer.file.build_problem(inherited.own_layer.path, message)
        problems_by_id[inherited.id] = (*problems_by_id.get(inherited.id, ()), problem)

    for entry in graph.entries:
        if not re.fullmatch(ID_PATTERN, entry.id):
            fixed = re.sub(r"[^a-z0-9_.-]+", "-", entry.id.casefold()).strip("-_.")
            hint = f"; did you mean '{fixed}'?" if re.fullmatch(ID_PATTERN, fixed) else ""
            add(entry, f"{_ID_RULE}{hint}")
        if entry.id in RESERVED_IDS:
            message = f"the ID {quote(entry.id)} is reserved in the build folder; use another one"
            add(entry, message)
        owner = owners.setdefault(entry.id.casefold(), entry)
        if owner is not entry:
            layer = owner.own_layer
            location = f"{layer.file.name}:{layer.file.lines[layer.path]}"
            message = f"the ID {quote(owner.id)} already exists at {location}; use another one"
            add(entry, message)
    return problems_by_id
