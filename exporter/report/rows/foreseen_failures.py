"""The items of `expect` that foresee the failures of cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from exporter.core.device_name import CURRENT, DeviceName
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.values import format_opset_run, format_toml_value
from exporter.planning.plan import CellFailure, list_failures
from exporter.records.record import Record, Status

#: The user's code before the problem, which has the same line for many problems.
_LINE = re.compile(r'^\S+:\d+: (".*?": )?')
_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")
#: Characters of a part of a message: a shorter one is not specific, a longer one is cut.
_MIN_MATCH, _MAX_MATCH = 12, 60
#: Stage, checks and a part of the message of each check.
_JoinedFailure = tuple[str | None, tuple[str, ...], str]


def format_expectations(spec: ModelSpec, records: Sequence[Record]) -> Iterator[str]:
    """Yield the items as TOML, for records of one device that fail in the same way.

    None can make an invalid entry green.
    """
    first = records[0]
    if not first.status.is_red or first.status is Status.XPASS or spec.problems:
        return
    device_name = first.cell.device
    is_plain = not device_name.suffix and any(each.suffix for each in spec.devices)
    for stage, checks, match in _join_failures(list_failures(first)):
        keys: dict[str, object] = {
            "opset": _format_opsets([each.cell.opset for each in records], spec.opsets),
            "device": DeviceName.build(device_name, CURRENT) if is_plain else device_name,
            "stage": stage,
            "check": checks[0] if len(checks) == 1 else checks,
            "match": match,
        }
        given = {key: value for key, value in keys.items() if value}
        # A list without a reason is invalid until a person adds one.
        yield format_toml_value({**given, "reason": ""})


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
    """Return a specific part of the message without its line, a tried fix and figures."""
    texts = [text for text in _LINE.sub("", message).split("; ") if "passes all checks" not in text]
    parts = [part.strip() for text in texts or [message] for part in _NUMBER.split(text)]
    specific = [part for part in parts if len(part) >= _MIN_MATCH]
    part = specific[0] if specific else max(parts, key=len)
    return part if len(part) <= _MAX_MATCH else part[:_MAX_MATCH].rsplit(" ", 1)[0]


def _format_opsets(opsets: Sequence[int], promised: Sequence[int]) -> str | int | list[int | str]:
    """Return opsets in the notation of manifests: `13`, `"9..13"`, or a list of both.

    A range may include an opset that the model does not promise.
    """
    runs: list[list[int]] = [[]]
    for opset in sorted(promised):
        if opset in opsets:
            runs[-1].append(opset)
        else:
            runs.append([])
    texts = [run[0] if len(run) == 1 else format_opset_run(run) for run in runs if run]
    return texts[0] if len(texts) == 1 else texts
