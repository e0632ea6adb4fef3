"""The contract of each model as the baseline stores it, and its changes since it was accepted."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from exporter.cache.states import hash_text
from exporter.gate.finding import GateFinding
from exporter.manifest import (
    Bound,
    Device,
    FindingKind,
    Gate,
    GatePolicy,
    Manifest,
    ModelSpec,
    Project,
)
from exporter.manifest.resolved.model import DEFAULT_NOISE_FACTOR
from exporter.manifest.rules.sources import WEIGHTS
from exporter.manifest.syntax.table import select_keys
from exporter.records.baseline import AcceptedModel, Baseline, list_operators
from exporter.records.record import CellId, RunRecord

#: The keys of an entry by the comparison that they need; see `Key.gate`.
DEFINING_KEYS, HARMLESS_KEYS, RESOLVED_KEYS = (
    select_keys(ModelSpec, gate=gate) for gate in ("definition", "nothing", "cell")
)
#: Keys of an entry that the stored contract does not have. The cells show opsets and devices. A
#: measurement promises nothing; with a revision, a removed one is a finding.
_UNSTORED_KEYS = HARMLESS_KEYS | {"opsets", "devices", "measure"}
#: Lists of an entry whose items have names -> the name of an item.
_NAMED_PARTS = {"inputs": "input", "outputs": "output", "axes": "axis", "cases": "case"}
#: Before the name of a device: its key concerns the cells of this device only.
_DEVICE = "device "
#: Parts that describe a promise, or choose the route of a file.
_EXCLUDED_PARTS: dict[str, Any] = {
    "expect": {"__all__": {"reason"}},
    "skip": {"__all__": {"reason"}},
    "overrides": {"__all__": {"exporter", "capture"}},
}
_MESSAGES = {
    FindingKind.RELAXED: "promises less than the accepted state",
    FindingKind.CONTRACT: "differs from the accepted state; `exporter baseline` accepts it",
    FindingKind.REDEFINED: "defines another model, other weights or another export",
}
#: Characters of a value in a message.
_LENGTH = 120


#: The beginning of the subject of a file of weights.
WEIGHTS_FILE = "weights file "
#: Digits of a hash in a message.
DIGITS = 12


#: A changed key before and after.
Change: TypeAlias = tuple[str, str]


def make_finding(
    kind: FindingKind, cell: CellId, change: Change, policy: GatePolicy
) -> GateFinding:
    return GateFinding(
        kind=kind,
        cell=cell,
        before=change[0],
        after=change[1],
        message=_MESSAGES[kind],
        action=policy.find_action(kind),
    )


def describe_device(project: Project, device: Device) -> dict[str, Any]:
    """Return the settings of a device, without its name and the state of this machine."""
    environment, others = device.environment, device.job_environment
    excluded = {"name", "strict", "environment", "job_environment"}
    settings: dict[str, Any] = {
        **device.model_dump(mode="json", exclude_defaults=True, exclude=excluded),
        "provider_library": device.provider_library.removeprefix(f"{project.root}/"),
        "requirements": [*environment.requirements] if environment else [],
        "python": environment.python if environment else "",
        "toolchain": [*others.requirements] if others else [],  # as in stored baselines
    }
    return {key: value for key, value in settings.items() if value}


def describe_states(
    manifest: Manifest, run: RunRecord, baseline: Baseline
) -> dict[str, AcceptedModel]:
    """Return the current state of each model, as the baseline stores it.

    Without a file that has weights, their values are unknown and count as the accepted ones, and so
    do initial values in place of a file of weights that is missing here.
    """
    initial = {record.cell.model for record in run.records if record.initial_weights}
    built = {each.cell.model for each in run.records if each.artifact and each.artifact.parameters}
    known = {model_id: each.weights for model_id, each in baseline.models.items()}
    built -= {spec.id for spec in manifest.models if spec.lacks_weights}
    known |= {model_id: "initial" if model_id in initial else "loaded" for model_id in built}
    operators = list_operators(run)
    digests = {model_id: each.weights_sha256 for model_id, each in baseline.models.items()}
    digests |= _list_weights_digests(manifest, run)
    return {
        spec.id: AcceptedModel(
            tools=dict(sorted(run.tools.items())),
            weights=known.get(spec.id, ""),
            weights_sha256="" if spec.weights_sha256 else digests.get(spec.id, ""),
            contract=_describe_contract(manifest.project, spec),
            operators=operators.get(spec.id, {}),
            cells=(),
        )
        for spec in manifest.models
    }


def _list_weights_digests(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    """Return the content of the files of weights that the results of each model depend on.

    Without the key `weights`, they are those that the source reads itself, and no tensors of
    inputs.
    """
    states: dict[str, dict[str, str]] = {}
    for record in run.records:
        for each in record.sources:
            if each.is_file and each.file.endswith(WEIGHTS):
                states.setdefault(record.cell.model, {})[each.file] = each.state
    digests: dict[str, str] = {}
    for spec in manifest.models:
        files = states.get(spec.id, {})
        if spec.weights:
            known = [files.get(spec.weights_path, "")]
        else:
            inputs = () if spec.is_saved else spec.data_files
            known = sorted(state for file, state in files.items() if file not in inputs)
        if any(known) and not spec.lacks_weights:
            digests[spec.id] = known[0] if len(known) == 1 else hash_text(" ".join(known))
    return digests


def _describe_contract(project: Project, spec: ModelSpec) -> dict[str, Any]:
    """Return the promises by their keys, without defaults; nothing for an invalid entry.

    A key of a later version changes nothing while it has its default.
    """
    if spec.problems:
        return {}
    excluded = dict.fromkeys(_UNSTORED_KEYS, True) | _EXCLUDED_PARTS
    contract: dict[str, Any] = {}
    for key, value in spec.model_dump(mode="json", exclude_defaults=True, exclude=excluded).items():
        if (part := _NAMED_PARTS.get(key)) is None:
            contract[key] = value
            continue
        if key in ("inputs", "outputs") and len(value) > 1:
            contract[f"order of {key}"] = [item["name"] for item in value]
        contract |= {f"{part} {item.pop('name')}": item for item in value}
    for name in spec.devices:
        device = project.find_device(name)
        settings: dict[str, Any] = {"strict": True} if device.strict else {}
        settings |= describe_device(project, device)
        if settings.get("provider_library", "").startswith("/"):
            del settings["provider_library"]  # a path of this machine
        contract[f"{_DEVICE}{name}"] = settings
    return contract


def find_state_changes(
    before: Baseline, after: Mapping[str, AcceptedModel], cells: Collection[CellId], gate: Gate
) -> Iterator[GateFinding]:
    """Yield each difference between the states of a model, for each of its accepted cells.

    Kinds that the policy ignores are not included.
    """
    for model_id, old in before.models.items():
        policy = gate.find_policy(model_id)
        changes = list(_compare_states(old, after[model_id])) if model_id in after else []
        changes = [each for each in changes if policy.find_action(each[0]) != "ignore"]
        for cell in (each.cell for each in old.cells if each.cell in cells):
            for kind, key, change in changes:
                if not key.startswith(_DEVICE) or key == f"{_DEVICE}{cell.device}":
                    yield make_finding(kind, cell, change, policy)


def _compare_states(
    old: AcceptedModel, new: AcceptedModel
) -> Iterator[tuple[FindingKind, str, Change]]:
    if old.weights and new.weights and old.weights != new.weights:
        kind = FindingKind.RELAXED if new.weights == "initial" else FindingKind.CONTRACT
        yield kind, "", format_change("values of the weights", old.weights, new.weights)
    if old.weights_sha256 and new.weights_sha256 and old.weights_sha256 != new.weights_sha256:
        digests = (each.weights_sha256[:DIGITS] for each in (old, new))
        name = f"{WEIGHTS_FILE}{new.contract.get('weights', 'of the source')}"
        yield FindingKind.REDEFINED, "", format_change(name, *digests)
    is_known = old.contract and new.contract
    if not is_known or serialize(old.contract) == serialize(new.contract):
        return
    keys = old.contract.keys() | new.contract.keys()
    for key in sorted(keys - _UNSTORED_KEYS - {"folder"}):  # older contracts have some of them
        first, second = (each.contract.get(key) for each in (old, new))
        if serialize(first) == serialize(second):  # NaN is equal to itself
            continue
        first, second = keep_differences(first, second)
        yield FindingKind.CONTRACT, key, format_change(key, first, second)


def keep_differences(old: Any, new: Any) -> tuple[Any, Any]:
    """Return the keys, or the items of lists, that the other value lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = {**old, **new}
        changed = [key for key in keys if serialize(old.get(key)) != serialize(new.get(key))]
        return {key: old.get(key) for key in changed}, {key: new.get(key) for key in changed}
    is_list = isinstance(old, list | tuple) and isinstance(new, list | tuple)
    if is_list and any(item not in new for item in old):
        return [a for a in old if a not in new], [b for b in new if b not in old]
    return old, new


def serialize(value: object) -> str:
    return json.dumps(to_jsonable_python(value), sort_keys=True)


def format_change(name: str, old: object, new: object) -> Change:
    return f"{name}: {_format_value(old)}", f"{name}: {_format_value(new)}"


def _format_value(value: object) -> str:
    match value:
        case Bound():
            keys = {"atol", "rtol", "outside", "noise", "steps"}
            items = value.model_dump(exclude_defaults=True, include=keys).items()
            text = ", ".join(f"{key} = {each:g}" for key, each in items)
            text = text or f"noise = {DEFAULT_NOISE_FACTOR:g} by default"
        case BaseModel():
            fields = value.model_dump(exclude_defaults=True, exclude={"name", "reason"})
            text = _format_value(fields) if fields else "default"
        case Mapping():
            known = {key: each for key, each in sorted(value.items()) if each not in (None, "", ())}
            text = ", ".join(f"{key} = {_format_value(each)}" for key, each in known.items())
            text = text or "default"
        case bool():
            text = str(value).lower()
        case tuple() | list():
            text = ", ".join(_format_value(each) for each in value)
        case _:
            text = str(value or "") if not isinstance(value, int | float) else str(value)
    return f"{text[:_LENGTH]}..." if len(text) > _LENGTH else text or "none"
