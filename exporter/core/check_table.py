"""The checks in the order of the report, and the codes of failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: The result of a load that fails after a structure check has failed.
LOAD_CHECK = "load"
#: The check of two runs of PyTorch, which decides if comparisons with PyTorch mean anything.
DETERMINISM_CHECK = "determinism"
#: The check of programs of the project that run the file.
CALLER_CHECK = "caller"


#: Prefix of `Reference.unstable` if a call changes buffers, which change the outputs of later ones.
STATEFUL_PREFIX = "it keeps state in its buffers"
#: Prefix if a call changes parameters; their names follow.
WEIGHTS_PREFIX = "a call changes"
#: Prefix if the outputs are others after calls with other inputs.
HISTORY_PREFIX = "its outputs depend on earlier calls"
#: Prefixes of a model that keeps state. A model with another message draws random numbers.
STATE_PREFIXES = (STATEFUL_PREFIX, WEIGHTS_PREFIX, HISTORY_PREFIX)
UNSTABLE = "PyTorch differs from itself: "


class CheckRow(NamedTuple):
    """The properties of a check; `exporter.checks` has its function."""

    stage: str = "parity"
    decides: bool = False
    """Whether the results of other checks mean nothing if it fails."""
    compares: bool = False
    """Whether it compares a file with runs of PyTorch."""
    is_short: bool = False
    """Whether it runs on a further device. Others judge the file or PyTorch, on any device."""
    code: str = ""
    """The code of its failures; empty: `E-NAME`."""


_COMPARISON = CheckRow(compares=True, is_short=True)
#: The checks in the order of the report.
CHECKS: Mapping[str, CheckRow] = {
    **dict.fromkeys(
        ("opset", "wellformed", "signature", "metadata", "labels"), CheckRow("structure")
    ),
    LOAD_CHECK: CheckRow("load"),
    "placement": CheckRow(decides=True, is_short=True),
    DETERMINISM_CHECK: CheckRow(decides=True, code="E-random"),
    "power": CheckRow(decides=True, compares=True),
    **dict.fromkeys(("parity", "axes", "cases", "values"), _COMPARISON),
    "tables": CheckRow(),
    **dict.fromkeys(("metric", "rollout"), _COMPARISON),
    CALLER_CHECK: CheckRow(),
}
COMPARISON_CHECKS = frozenset(name for name, row in CHECKS.items() if row.compares)


def _list_codes(stage: str, *, decides: bool = False) -> dict[str, Mapping[str, str]]:
    return {
        row.code or f"E-{name}": {"check": name}
        for name, row in CHECKS.items()
        if row.stage == stage and row.decides is decides
    }


#: Code -> the fields of a red record, as regular expressions; the first code whose fields all match
#: is its code. Codes never change their meaning. `docs/failures.md` explains each one.
FAILURE_CODES: Mapping[str, Mapping[str, str]] = {
    "E-unexpected-pass": {"status": "xpass"},
    "E-killed": {"status": "killed"},
    "E-timeout": {"status": "timeout"},
    "E-crash": {"status": "crash"},
    "E-chain": {"message": r".*\bthe link '|each link is right "},
    "E-pass": {"message": r"(.*\": )?pass \d+ of \d+ \("},
    "E-entry": {"stage": "source", "message": r"\S+\.toml(:\d+)?: "},
    "E-contract": {"status": "fail", "place": r"source |parity .*PyTorch itself fails on "},
    "E-import": {
        "stage": "source",
        "message": r".*in the import of "
        r"|(.*\": )?(\w*Import|ModuleNotFound|Syntax|Indentation)Error\b",
    },
    "E-weights": {"stage": "source", "message": r".*(`weights|\bweights\b|sha256)"},
    "E-source": {"stage": "source"},
    "E-capture": {"stage": "capture"},
    "E-operator": {"stage": "convert", "missing": "yes"},
    "E-convert": {"stage": "convert"},
    "E-axis-fixed": {"check": "signature", "message": r".*axis '.*' of .* is fixed at \d"},
    "E-axis-name": {"check": "signature", "message": r".*axis '.*' of .* has (no|the) name"},
    "E-input-ignored": {"check": "signature", "message": r".*the graph ignores input"},
    "E-weight-names": {"check": "signature", "message": r".*(no|the) weight\b"},
    **_list_codes("structure"),
    "E-load": {"stage": "load"},
    "E-state": {"state": "yes"},
    **_list_codes("parity", decides=True),
    "E-unproved": {"status": "inconclusive"},
    "E-tolerance": {"culprit": "precision"},
    "E-runtime": {"culprit": "ONNX Runtime optimizer|kernel|runtime"},
    **_list_codes("parity"),
    "E-worker": {},
}


#: The value of `hardware` in the figures of `placement` if a processor emulates the device.
SOFTWARE = "software"
