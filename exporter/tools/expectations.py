"""The command `expectations`: lists of `expect` that match the results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import tomli

from exporter.core.device_name import CURRENT_TOOLCHAIN, DeviceName
from exporter.manifest import Condition, Expectation, Manifest, ModelSpec
from exporter.manifest.cell_settings import format_toml_value
from exporter.manifest.syntax.values import format_opset_run
from exporter.planning.plan import (
    CellFailure,
    condition_matches,
    is_for_version,
    is_foreseen,
    list_cells,
    list_failures,
    matches_failure,
)
from exporter.records.record import CellId, Record, Status

_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")
#: Characters of a part of a message: a shorter one is not specific, a longer one is cut.
_MIN_MATCH, _MAX_MATCH = 12, 60
#: Stage, checks and a part of the message of each check.
_JoinedFailure = tuple[str | None, tuple[str, ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectEntry:
    """One expectation of the new list."""

    expectation: Expectation
    index: int | None = None
    """The index in the present list, None for a new entry."""
    is_changed: bool = False
    """True if the entry is for other cells than at present."""


#: For each model ID, the present contract and the complete new list.
ExpectationLists = Mapping[str, tuple[ModelSpec, Sequence[ExpectEntry]]]


def propose_lists(
    manifest: Manifest,
    records: Sequence[Record],
    today: date,
    reason: str,
    texts: Iterable[str],
) -> ExpectationLists:
    """Return the new list of each model with a change.

    A model that inherits a changed list gets its own list, unless the parent's new list is the
    right one for it.
    """
    lists = {spec.id: propose_entries(spec, records, today, reason) for spec in manifest.models}
    changed = {
        spec.id
        for spec in manifest.models
        if [entry.index for entry in lists[spec.id]] != list(range(len(spec.expect)))
        or any(entry.is_changed for entry in lists[spec.id])
    }
    parents = {
        id: entry["extends"]
        for text in texts
        for id, entry in tomli.loads(text).get("models", {}).items()
        if "expect" not in entry and "extends" in entry
    }

    def is_written(id: str) -> bool:
        ancestor = parents.get(id)
        while ancestor is not None and ancestor not in changed:
            ancestor = parents.get(ancestor)
        if ancestor is None:
            return id in changed
        inherited = [entry.expectation for entry in lists[ancestor]]
        return [entry.expectation for entry in lists[id]] != inherited

    return {spec.id: (spec, lists[spec.id]) for spec in manifest.models if is_written(spec.id)}


def propose_entries(
    spec: ModelSpec, records: Iterable[Record], today: date, reason: str
) -> list[ExpectEntry]:
    """Return the complete list of expectations that matches the results.

    `reason` is the reason of every new expectation, given by a person. An expectation with an
    `until` before today is ignored.
    """
    results = {
        record.cell: record
        for record in records
        if record.cell.model == spec.id and record.status not in (Status.SKIP, Status.UNAVAILABLE)
    }
    entries: list[ExpectEntry] = []
    for index, item in enumerate(spec.expect):
        cells = [cell for cell in list_cells(spec) if condition_matches(item, cell)]
        # The failure still occurs, or the expectation is for another torch.
        remaining = [
            cell
            for cell in cells
            if not (record := results.get(cell))
            or is_foreseen(item, record, today)
            or not is_for_version(item, record)
        ]
        if remaining == cells:
            entries.append(ExpectEntry(expectation=item, index=index))
            continue
        devices = tuple(dict.fromkeys(cell.device for cell in cells))
        for condition in _list_conditions(remaining, devices):
            # A pattern that still matches exactly these devices stays.
            names = {"device": condition.device, "toolchain": condition.toolchain}
            changed = {key: name for key, name in names.items() if name != "*"}
            narrowed = item.model_copy(update={"opsets": condition.opsets, **changed})
            entries.append(ExpectEntry(expectation=narrowed, index=index, is_changed=True))
    unforeseen = {
        cell: failures
        for cell, record in results.items()
        if (failures := _list_unforeseen(spec, record, today))
    }
    # One new expectation is for failures that differ only in their figures.
    groups: dict[_JoinedFailure, list[CellId]] = {}
    for cell, failures in unforeseen.items():
        for joined in _join_failures(failures):
            groups.setdefault(joined, []).append(cell)
    for (stage, checks, match), cells in groups.items():
        for condition in _list_conditions(cells, spec.devices):
            added = Expectation.from_fields(
                condition, stage=stage, checks=checks, match=match, reason=reason
            )
            entries.append(ExpectEntry(expectation=added))
    return entries


def _list_unforeseen(spec: ModelSpec, record: Record, today: date) -> tuple[CellFailure, ...]:
    """Return the failures of a cell that no current expectation matches."""
    if record.status in (Status.PASS, Status.XPASS):
        return ()
    items = [
        item
        for item in spec.expect
        if condition_matches(item, record.cell) and is_foreseen(item, record, today)
    ]
    return tuple(
        failure
        for failure in list_failures(record)
        if not any(matches_failure(item, failure) for item in items)
    )


def _list_conditions(cells: Iterable[CellId], devices: Sequence[DeviceName]) -> Iterator[Condition]:
    """Yield conditions that match these cells of the `devices`.

    A condition names no device or no toolchain if the opsets are the same on all of them.
    """
    by_device: dict[DeviceName, list[int]] = {}
    for cell in cells:
        by_device.setdefault(cell.device, []).append(cell.opset)
    opsets = {device: tuple(sorted(each)) for device, each in by_device.items()}
    if len(set(opsets.values())) == 1 and set(opsets) == set(devices):
        yield Condition(opsets=next(iter(opsets.values())))
        return
    has_toolchains = any(device.toolchain for device in devices)
    for name in dict.fromkeys(device.toolchain for device in opsets):
        toolchain = name or CURRENT_TOOLCHAIN if has_toolchains else "*"
        members = {device: opsets[device] for device in opsets if device.toolchain == name}
        of_toolchain = {device for device in devices if device.toolchain == name}
        if has_toolchains and len(set(members.values())) == 1 and set(members) == of_toolchain:
            yield Condition(opsets=next(iter(members.values())), toolchain=toolchain)
            continue
        for device, each in members.items():
            yield Condition(opsets=each, device=device.base, toolchain=toolchain)


def _join_failures(failures: Sequence[CellFailure]) -> list[_JoinedFailure]:
    """Return stage, checks and text of expectations for all failures of one cell.

    Checks of one stage share an expectation if the same text is in their messages.
    """
    joined: list[_JoinedFailure] = []
    for failure in failures:
        stage = failure.stage.value if failure.stage else None
        for index, (other, checks, match) in enumerate(joined):
            is_shared = other == stage and match.casefold() in failure.message.casefold()
            if failure.check and checks and is_shared:
                joined[index] = (stage, (*checks, failure.check), match)
                break
        else:
            checks = (failure.check,) if failure.check else ()
            joined.append((stage, checks, _select_match(failure.message)))
    return joined


def _select_match(message: str) -> str:
    """Return a specific part of the message without figures."""
    parts = [part.strip() for part in _NUMBER.split(message)]
    specific = [part for part in parts if len(part) >= _MIN_MATCH]
    part = specific[0] if specific else max(parts, key=len)
    return part if len(part) <= _MAX_MATCH else part[:_MAX_MATCH].rsplit(" ", 1)[0]


def format_opset_condition(
    opsets: Sequence[int], promised: Sequence[int]
) -> str | int | list[int | str]:
    """Return opsets in the notation of manifests: `13`, `"9..13"`, or a list of both.

    A range may include an opset that the model does not promise.
    """
    runs: list[list[int]] = [[]]
    for opset in sorted(promised):
        if opset in opsets:
            runs[-1].append(opset)
        else:
            runs.append([])
    texts: list[int | str] = [
        run[0] if len(run) == 1 else format_opset_run(run) for run in runs if run
    ]
    return texts[0] if len(texts) == 1 else texts


def format_list(spec: ModelSpec, entries: Sequence[ExpectEntry]) -> str:
    """Return the key `expect` of an entry as TOML."""
    lines = [f"  {format_toml_value(_list_keys(each.expectation, spec))}," for each in entries]
    return "\n".join(("expect = [", *lines, "]")) if lines else "expect = []"


def _list_keys(item: Expectation, spec: ModelSpec) -> dict[str, object]:
    checks = item.checks[0] if len(item.checks) == 1 else item.checks
    keys: dict[str, object] = {
        "opset": item.opsets and format_opset_condition(item.opsets, spec.opsets),
        "device": item.device if item.device != "*" else "",
        "toolchain": item.toolchain if item.toolchain != "*" else "",
        "stage": item.stage,
        "check": checks,
        "match": item.match,
        "reason": item.reason,
        **{key: getattr(item, key) for key in ("issue", "until", "torch")},
    }
    # A list without a reason is invalid until a person adds one.
    return {key: value for key, value in keys.items() if value or key == "reason"}
