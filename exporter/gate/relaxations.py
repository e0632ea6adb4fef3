"""Relaxations: promises of a revision that the current manifests do not keep.

A branch must not be able to weaken its own gate. Any change of a promise that cannot be shown to be
as strict is therefore a finding. Every key of an entry is compared, except `_HARMLESS_KEYS`: those
in `DEFINING_KEYS` define another model (`REDEFINED`), the others are promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from exporter.core.errors import Location
from exporter.core.onnxruntime_releases import format_release
from exporter.core.text_format import pluralize
from exporter.core.toml_table import SETTINGS_FILE
from exporter.gate.definitions import DEFINING_KEYS, Change, DataHashes, compare_definitions
from exporter.gate.finding import FindingKind, GateFinding, PolicySetting
from exporter.manifest import (
    Action,
    Axis,
    Bound,
    Device,
    Expectation,
    GatePolicy,
    Manifest,
    ModelSpec,
    select_bound,
)
from exporter.manifest.resolved.tolerances import DEFAULT_NOISE_FACTOR
from exporter.manifest.syntax.consumers import find_lowest_release
from exporter.planning.plan import condition_matches
from exporter.records.record import CellId

_SEVERITY = {"ignore": 0, "warn": 1, "block": 2}
#: Keys of the policy with a threshold: a smaller value is stricter.
_THRESHOLDS = (
    "error_factor", "error_floor", "file_growth", "latency_factor", "load_factor",
    "memory_factor", "node_growth",
)  # fmt: skip
#: Keys that describe an entry or limit its job. The records contain the route of the file.
_HARMLESS_KEYS = frozenset(
    {
        *("id", "manifest", "line", "description", "owner", "tags", "timeout", "memory"),
        *("problems", "exporter", "capture"),
    }
)
#: Keys that `find_relaxations` and `_list_promises` read one by one.
_COMPARED_KEYS = frozenset(
    {
        *("opsets", "devices", "inputs", "outputs", "axes", "cases", "tolerance", "overrides"),
        *("expect", "skip", "thorough", "measure", "ir_version", "inputs_from", "parameters"),
        *("precision", "mode", "constants", "consumers"),
    }
)
#: Promises of which a lower value is stricter: another IR version, an older release.
_CEILINGS = ("ir_version", "consumers")
#: Prefixes of the names of shapes of inputs and of outputs.
_SHAPES = ("shape of input ", "shape of output ")
_MESSAGES = {
    FindingKind.RELAXED: "the promise is weaker than at the revision",
    FindingKind.REDEFINED: "the entry defines another model or export than at the revision",
}


def find_relaxations(
    before: Manifest,
    after: Manifest,
    hashes: tuple[DataHashes, DataHashes] = ({}, {}),
) -> tuple[GateFinding, ...]:
    """Compare the entries of two manifests, cell by cell; the policy of `before` applies.

    Args:
        before: The manifests of the revision.
        after: The current manifests.
        hashes: The hashes of data files at the revision and now.
    """
    current = {spec.id: spec for spec in after.models}
    findings = list(_find_weaker_settings(before, after))
    for old in before.models:
        policy = before.project.gate.find_policy(old.id)
        new = current.get(old.id)
        for cell in _list_cells(old):
            definitions: list[Change] = []
            if new is None or cell not in _list_cells(new):
                changes = [Change("promised", "no longer promised")]
            elif new.problems:
                changes = []  # its promises are unknown, and all its cells are red
            else:
                first, second = (side.get(old.id, {}) for side in hashes)
                definitions = list(compare_definitions(old, new, cell, (first, second)))
                changes = [
                    *_compare_promises(
                        _list_promises(before, old, cell), _list_promises(after, new, cell)
                    ),
                    *_compare_expectations(old, new, cell),
                ]
            findings += [
                GateFinding(
                    kind=kind,
                    cell=cell,
                    before=change.before,
                    after=change.after,
                    message=_MESSAGES[kind],
                    action=kind.find_action(policy),
                )
                for kind, group in (
                    (FindingKind.RELAXED, changes),
                    (FindingKind.REDEFINED, definitions),
                )
                for change in group
            ]
    reported = (finding for finding in findings if finding.action != "ignore")
    return tuple(sorted(reported, key=lambda finding: finding.sort_key))


def _list_cells(spec: ModelSpec) -> list[CellId]:
    return [
        CellId(model=spec.id, opset=opset, device=device)
        for opset in spec.opsets
        for device in spec.devices
    ]


def _list_definition(device: Device) -> tuple[object, ...]:
    environment, toolchain = device.environment, device.toolchain
    return (
        device.runtime,
        device.providers,
        device.module,
        device.device,
        *((environment.requirements, environment.python) if environment else ()),
        *(toolchain.requirements if toolchain else ()),
        *(() if not device.optimization else (device.optimization,)),
        *sorted(device.session_options.items()),
        *sorted(device.provider_options.items()),
        *(() if not device.provider_library else (device.provider_library,)),
    )


def _list_promises(manifest: Manifest, spec: ModelSpec, cell: CellId) -> dict[str, object]:
    """Return everything that the entry promises for the cell, by a name for messages."""
    spec = spec.resolve_cell(cell.opset, cell.device)
    device = manifest.project.find_device(cell.device)
    promises: dict[str, object] = {
        "skipped": any(condition_matches(skip, cell) for skip in spec.skip),
        "thorough": spec.thorough,
        "ir_version": spec.ir_version,
        "consumers": find_lowest_release(spec.consumers),
        "inputs_from": spec.inputs_from.function if spec.inputs_from else "none",
        "parameters": spec.parameters,
        "precision": spec.precision,
        "mode": spec.mode,
        "constants": tuple(f"{each.at} = {each.value!r}" for each in spec.constants),
        "order of inputs": tuple(item.name for item in spec.inputs),
        "order of outputs": tuple(item.name for item in spec.outputs),
        f"device {cell.device}, strict": device.strict,
        f"device {cell.device}": _list_definition(device),
    }
    promises |= {
        f"tolerance of {output.name}": select_bound(spec, output, cell.device)
        for output in spec.outputs
    }
    promises |= {f"measure {name}": True for name in spec.measure}
    promises |= {f"masked_by of {output.name}": output.masked_by for output in spec.outputs}
    promises |= {f"axis {axis.name}": axis for axis in spec.axes}
    promises |= {f"input {item.name}": item.fill for item in spec.inputs}
    promises |= {
        f"place of {item.name}": (item.at, item.scalar, item.optional) for item in spec.inputs
    }
    for items, prefix in zip((spec.inputs, spec.outputs), _SHAPES, strict=True):
        promises |= {f"{prefix}{item.name}": item.shape for item in items}
        promises |= {f"dtype of {item.name}": item.dtype for item in items}
    promises |= {f"kind of {output.name}": output.kind for output in spec.outputs}
    promises |= {f"case {case.name}": case for case in spec.cases}
    others = ModelSpec.model_fields.keys() - _HARMLESS_KEYS - _COMPARED_KEYS - DEFINING_KEYS
    return promises | {key: getattr(spec, key) for key in others}


def _compare_promises(
    before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Change]:
    for name, old in before.items():
        new = after.get(name)
        if not _is_as_strict(name, old, new):
            yield Change(f"{name}: {_format_value(old)}", f"{name}: {_format_value(new)}")


def _is_as_strict(name: str, old: object, new: object) -> bool:
    """Return whether the new value of a promise is equal to the old one or stricter."""
    match old, new:
        case Bound(), Bound():
            return _is_bound_as_strict(old, new)
        case Axis(), Axis():
            is_open = new.max is None or (old.max is not None and new.max >= old.max)
            is_dense = old.multiple_of % new.multiple_of == 0
            is_wide = is_open and is_dense and new.min <= old.min
            # A rule relates sizes: only for an axis without any promised size is it stricter.
            is_same_rule = new.rule == old.rule or (old.example is None and old.rule is None)
            return is_wide and is_same_rule and set(new.probe) >= set(old.probe)
        case bool(), bool() if name == "skipped":
            return old or not new
        case bool(), bool() if name == "thorough" or name.endswith(", strict"):
            return new or not old
        case str(), str() if name.startswith("masked_by of "):
            return new in (old, "")
        case (int(), int()) | (tuple(), tuple()) if name in _CEILINGS:
            return _is_at_most(new, old)
        case tuple(), tuple() if name.startswith(_SHAPES):
            # An input with a name and an output with a size instead promise more.
            fixed = old if name.startswith(_SHAPES[0]) else new
            pairs = zip(old, new, fixed, strict=False)
            return len(old) == len(new) and all(
                a == b or (isinstance(c, int) and type(a) is not type(b)) for a, b, c in pairs
            )
        case _:
            return old == new or (old is None and name != "precision")


def _is_at_most(new: object, old: object) -> bool:
    if isinstance(new, int) and isinstance(old, int):
        return new <= old
    return isinstance(new, tuple) and isinstance(old, tuple) and new <= old


def _is_bound_as_strict(old: Bound, new: Bound) -> bool:
    if new.outside > old.outside:
        return False
    if old.steps is not None or new.steps is not None:
        # The other tolerances are not comparable with steps.
        return old.steps is not None and new.steps is not None and new.steps <= old.steps
    if old.atol is None and new.atol is None:
        if old.noise is None and new.noise is not None:
            return False  # an explicit factor accepts more noise than the default does
        return (new.noise or DEFAULT_NOISE_FACTOR) <= (old.noise or DEFAULT_NOISE_FACTOR)
    if old.atol is None or new.atol is None:
        return False  # a measured and a fixed tolerance are not comparable
    return new.atol <= old.atol and (new.rtol or 0.0) <= (old.rtol or 0.0)


def _format_value(value: object) -> str:
    match value:
        case Bound():
            if value.steps is not None:
                text = f"steps = {value.steps:g}"
            elif value.atol is None:
                default = "" if value.noise else " by default"
                text = f"noise = {value.noise or DEFAULT_NOISE_FACTOR:g}{default}"
            else:
                text = f"atol = {value.atol:g}, rtol = {value.rtol or 0.0:g}"
            return text + (f", outside = {value.outside:g}" if value.outside else "")
        case BaseModel():
            fields = value.model_dump(exclude_defaults=True, exclude={"name", "reason"})
            return ", ".join(f"{key} = {each}" for key, each in fields.items()) or "default"
        case bool():
            return str(value).lower()
        case int(major), int(minor):
            return f"onnxruntime>={format_release((major, minor))}"
        case tuple():
            return ", ".join(str(each) for each in value if each)
        case _:
            return "none" if value is None else str(value)


def _compare_expectations(old: ModelSpec, new: ModelSpec, cell: CellId) -> Iterator[Change]:
    """Yield each expectation that foresees more failures than those of the revision."""
    known = [item for item in old.expect if condition_matches(item, cell)]
    for item in new.expect:
        if condition_matches(item, cell) and not any(_is_covered(item, by) for by in known):
            before = "; ".join(_format_value(each) for each in known) or "none"
            yield Change(f"expect: {before}", f"expect: {_format_value(item)}")


def _is_covered(item: Expectation, by: Expectation) -> bool:
    """Return whether `by` foresees every failure that `item` foresees."""
    return (
        by.stage in (None, item.stage)
        and bool(by.checks) == bool(item.checks)
        and set(item.checks) <= set(by.checks)
        and by.match.casefold() in item.match.casefold()
        # Two ranges of versions are not compared.
        and by.torch in ("", item.torch)
        # An expectation without `until` never expires.
        and (not by.until or (bool(item.until) and item.until <= by.until))
    )


def _find_weaker_settings(before: Manifest, after: Manifest) -> Iterator[GateFinding]:
    """Yield one finding for each weaker key of the gate's policy and its line.

    A cell that is no longer promised has a finding of its own.
    """
    current = {spec.id: spec for spec in after.models}
    edits: dict[tuple[Change, Location], list[tuple[Action, CellId]]] = {}
    for old in before.models:
        new = current.get(old.id)
        if new is None or new.problems:
            continue
        policy, new_policy = (each.project.gate.find_policy(old.id) for each in (before, after))
        action = FindingKind.RELAXED.find_action(policy)
        promised = {*_list_cells(new)}
        for key, change in _compare_policies(policy, new_policy):
            line = after.project.gate.find_line(old.id, key)
            edits.setdefault((change, Location(file=SETTINGS_FILE, line=line)), []).extend(
                (action, cell) for cell in _list_cells(old) if cell in promised
            )
    for (change, location), affected in edits.items():
        cells = tuple(cell for _, cell in affected)
        if cells:
            models = len({cell.model for cell in cells})
            yield GateFinding(
                kind=FindingKind.RELAXED,
                cell=cells[0],
                before=change.before,
                after=change.after,
                message=f"weaker than at the revision, for {pluralize(models, 'model')}",
                action=max((action for action, _ in affected), key=_SEVERITY.__getitem__),
                setting=PolicySetting(location=location, cells=cells),
            )


def _compare_policies(old: GatePolicy, new: GatePolicy) -> Iterator[tuple[str, Change]]:
    for key in GatePolicy.model_fields:
        before, after = getattr(old, key), getattr(new, key)
        is_looser = after > before if key in _THRESHOLDS else _SEVERITY[after] < _SEVERITY[before]
        if is_looser:
            yield key, Change(f"gate.{key} = {before}", f"gate.{key} = {after}")
