"""Load a project: read all files, resolve all models, and report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.manifest import project_settings
from exporter.manifest.resolved.call import Constant, Fill, Input
from exporter.manifest.resolved.keys import Keys
from exporter.manifest.resolved.model import Comparator, Expectation, ModelSpec, Output, Skip
from exporter.manifest.resolved.project import Manifest, Project
from exporter.manifest.rules import (
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
from exporter.manifest.rules.custom_op_rules import resolve_custom_ops
from exporter.manifest.rules.inheritance import InheritanceGraph, InheritedEntry
from exporter.manifest.rules.input_cases import resolve_cases
from exporter.manifest.rules.invalid_entries import list_unreadable, make_invalid_spec
from exporter.manifest.rules.invalid_tables import EXAMPLES
from exporter.manifest.rules.layers import (
    EffectiveSettings,
    EntryContext,
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
from exporter.manifest.schema.entry import ID_PATTERN, Settings
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.toml_file import ProblemCollector, read_toml
from exporter.manifest.syntax.values import KeyPath, quote

#: Other places for a required key.
_OTHER_PLACES = {"opsets": " here, in [defaults] or in [tool.exporter.defaults]"}
#: The rules of keys, which run if the value of the key is valid. The spec takes others of `Keys`.
_RESOLVERS: Mapping[str, Callable[[EffectiveSettings], object]] = {
    "devices": project_settings.add_consumer_devices,
    "source": lambda model: model.check_source(("source",), model.settings.source),
    "weights": sources.resolve_weights,
    "weights_names": sources.resolve_weights_names,
    "weights_sha256": sources.resolve_weights_hash,
    "artifact": finished_sources.resolve_artifact,
    "expect": lambda model: resolve_conditions(model, "expect", Expectation),
    "skip": lambda model: resolve_conditions(model, "skip", Skip),
    "parameters": sources.resolve_parameters,
    "options": option_rules.resolve_options,
    "custom_ops": resolve_custom_ops,
    "overrides": option_rules.resolve_overrides,
    "depends": sources.resolve_depends,
    "tolerance": lambda model: resolve_tolerance(model, ("tolerance",), model.settings.tolerance),
    "containers": resolve_containers,
    "inputs_from": lambda model: fills.resolve_inputs_from(
        model, ("inputs_from",), model.settings.inputs_from
    ),
}
#: The rules of keys that are resolved together; they run if a layer sets one of the keys.
_JOINT_RULES: Sequence[tuple[Sequence[str], Callable[[EffectiveSettings], Mapping[str, Any]]]] = (
    (("generate",), generate.resolve),
    (("generate", "rollout", "tokens"), rollout.resolve),
    (("passes",), passes.resolve),
)


def resolve_model(model: EffectiveSettings) -> ModelSpec:
    """Return the spec of the model; if it has a problem, one with its problems."""
    settings = model.settings
    _check_required_keys(model)
    _check_devices(model)
    fields: dict[str, Any] = {key: getattr(settings, key) for key in Keys.model_fields}
    for key, value in fields.items():
        if isinstance(value, Table) and model.has_valid(key):
            fields[key] = model.check_functions((key,), value)
    fields |= {key: rule(model) for key, rule in _RESOLVERS.items() if model.has_valid(key)}
    for keys, rule in _JOINT_RULES:
        if any((key,) in model.origins for key in keys):
            fields |= rule(model)
    fields |= _resolve_signature(model)
    if model.report or model.broken:
        return make_invalid_spec(model)
    return ModelSpec(
        id=model.id,
        manifest=model.entry.file.name,
        line=model.entry.file.lines[model.entry.path],
        constants=tuple(Constant(at=each.at, value=each.value) for each in settings.constants),
        **fields,
    )


def _resolve_signature(model: EffectiveSettings) -> dict[str, Any]:
    """Return inputs, outputs, axes and cases, or {} if one of them is invalid."""
    settings = model.settings
    if model.has_valid("inputs"):
        values = [
            _resolve_fill(model, ("inputs", index), table)
            for index, table in enumerate(settings.inputs)
        ]
        call_paths = resolve_call_paths(model)
    if model.has_valid("outputs"):
        tolerances = [
            resolve_tolerance(model, ("outputs", index, "tolerance"), table.tolerance)
            if table.tolerance
            else None
            for index, table in enumerate(settings.outputs)
        ]
    if not model.has_valid("inputs", "outputs"):
        return {}
    shapes = {shape.path: shape for shape in signature.resolve_shapes(model)}
    fills.check_fills(model, shapes)
    comparators: Sequence[Comparator | None] = [None] * len(settings.outputs)
    if any(table.compare is not None or table.masked_by for table in settings.outputs):
        comparators = resolve_comparators(model, shapes)
    axes = resolve_axes(model, tuple(shapes.values()))
    has_cases = model.has_valid("cases") and settings.cases
    cases = resolve_cases(model, axes) if has_cases else ()
    if model.report:
        return {}
    inputs = tuple(
        Input.from_fields(
            table,
            shape=shapes["inputs", index].dims,
            dtype=signature.resolve_dtype(settings, table),
            at=call_paths[index],
            fill=values[index],
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
        )
        for index, table in enumerate(settings.outputs)
    )
    return {
        "inputs": inputs,
        "outputs": outputs,
        "axes": axes,
        "cases": cases,
    }


def _resolve_fill(model: EffectiveSettings, path: KeyPath, table: InputTable) -> Fill:
    """Return the fill of an input; without one, a function of `inputs_from` draws the values."""
    has_function = model.settings.inputs_from or not model.has_valid("inputs_from")
    if has_function and "fill" not in table.model_fields_set:
        return Fill(kind="function")
    return fills.resolve_fill(
        model, (*path, "fill"), table.fill, signature.resolve_dtype(model.settings, table)
    )


def _check_required_keys(model: EffectiveSettings) -> None:
    settings = model.settings
    for key in Settings.required:
        if (key,) not in model.origins and key not in model.broken:
            choice = _OTHER_PLACES.get(key, "")
            message = f"needs the key '{key}'{choice}; add `{key} = {EXAMPLES[key]}`"
            model.report.add(model.entry.file.build_problem(model.entry.path, message))
    is_generator = settings.exporter == "transformers" and model.has_valid("exporter", "generate")
    if is_generator and not settings.generate:
        message = "needs the key `generate`, such as `generate = { steps = 32 }`"
        model.add_problem(("exporter",), message)


def _check_devices(model: EffectiveSettings) -> None:
    """Report unknown devices, except those of `[tool.exporter]`, which are already checked."""
    if model.has_valid("devices") and model.find_layer(("devices",)).path[0] != "tool":
        names, devices = model.settings.devices, model.context.devices
        for index, message in project_settings.find_device_problems(names, devices):
            model.add_problem(("devices", index), message)


_ID_RULE = "expected an ID of up to 100 of a-z, 0-9, '_', '.' and '-' that begins with a-z or 0-9"
#: Names in the build folder that are not folders of models.
RESERVED_IDS = frozenset(
    {"results.json", "stamps.json", "reports.json", "untouched.json", "shard.json"}
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
    root: Path, fallback_root: Path | None = None, *, keep_invalid: bool = False
) -> Manifest:
    """Return the manifest of a project; see `load_layers`."""
    return load_layers(root, fallback_root, keep_invalid=keep_invalid).manifest


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
) -> LoadedProject:
    """Read `[tool.exporter]` of pyproject.toml and every manifest of the project.

    Args:
        root: The project's root; paths in messages are relative to it.
        fallback_root: The work tree if `root` is a revision, for the files that it lacks.
        keep_invalid: Return an invalid entry as a model with `problems`, and the problems of files
            in `Manifest.problems`, instead of an error.
        manifests: Another folder than that of the settings, for entries that are not written yet.

    Raises:
        ExporterError: MANIFEST, with every problem of every file. If `keep_invalid` is set: only if
            `[tool.exporter]` has a problem, or if no file has a readable entry.
    """
    root = root.absolute()
    report, settings_report = ProblemCollector(), ProblemCollector()
    settings = project_settings.read_project(root, settings_report)
    graph = InheritanceGraph()
    folder = manifests or settings.project.manifests
    files = tuple(_read_manifests(root, folder, report))
    for file in files:
        graph.add(file)
    invalid_ids = _find_invalid_ids(graph)
    if not manifests:
        project_settings.check_gate(
            settings, {entry.id for entry in graph.entries}, settings_report
        )
    base = (settings.layer,) if settings.layer else ()
    context = EntryContext(
        root,
        fallback_root,
        devices=settings.project.device_names,
        pinned=project_settings.list_pinned_devices(settings.project.devices),
    )
    models = []
    for entry in graph.entries:
        entry_report = ProblemCollector()
        layers = (*base, *graph.add_interfaces(entry, entry_report))
        expanded = repeated_tables.expand_repeats(
            merge_layers(entry.id, layers, entry_report, context)
        )
        models.append(python_code.complete_input_names(expanded))
    for file in files:
        check_shared_axes(file.defaults, models)
    specs = [resolve_model(model) for model in models]
    for model in models:
        report.include(model.report)
    for problems in invalid_ids.values():
        for problem in problems:
            report.add(problem)
    if files and not graph.entries and not report and not settings_report:
        message = "no manifest has a [models.ID]; add one"
        report.add(Problem(message=message, location=Location(file=folder)))
    resolved = _keep_valid_ids(files, specs, invalid_ids)
    if settings_report or (report and not (keep_invalid and resolved)):
        settings_report.include(report)
        raise ExporterError(ExitCode.MANIFEST, settings_report.list_problems())
    attributed = {text for spec in resolved for text in spec.problems}
    other_problems = ProblemCollector()
    for problem in report:
        if str(problem) not in attributed:
            other_problems.add(problem)
    return LoadedProject(
        manifest=Manifest(
            project=settings.project,
            models=resolved,
            problems=other_problems.list_problems(),
        ),
        layers={model.id: model for model in reversed(models)},
        files=frozenset(context.files),
    )


def list_manifests(folder: Path) -> list[Path]:
    """Return every manifest below a folder, sorted by path, without hidden files and folders."""
    return sorted(
        path
        for path in folder.rglob("*.toml")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _read_manifests(root: Path, folder: str, report: ProblemCollector) -> Iterator[ManifestFile]:
    """Yield every manifest and every interface below the folder."""
    base = root / folder
    paths = list_manifests(base)
    if not paths:
        problem = "contains no manifest (*.toml)" if base.is_dir() else "the folder does not exist"
        message = f"{problem}; run the command in the project's folder, pass it with --root, set "
        message += "`manifests` in [tool.exporter] of its pyproject.toml, or run `exporter init`"
        report.add(Problem(message=message, location=Location(file=folder)))
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
        texts += earlier.problems if earlier else ()
        problems = tuple(dict.fromkeys((*texts, *spec.problems)))
        by_id[spec.id] = (earlier or spec).model_copy(update={"problems": problems})
    return tuple(by_id.values())


def _find_invalid_ids(graph: InheritanceGraph) -> dict[str, tuple[Problem, ...]]:
    """Return problems by ID: malformed, reserved, or equal to another one if case is ignored."""
    owners: dict[str, InheritedEntry] = {}
    problems_by_id: dict[str, tuple[Problem, ...]] = {}

    def add(entry: InheritedEntry, message: str) -> None:
        problem = entry.entry.file.build_problem(entry.entry.path, message)
        problems_by_id[entry.id] = (*problems_by_id.get(entry.id, ()), problem)

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
            location = f"{owner.entry.file.name}:{owner.entry.file.lines[owner.entry.path]}"
            message = f"the ID {quote(owner.id)} already exists at {location}; use another one"
            add(entry, message)
    return problems_by_id
