"""A trap: a broken contract or a changed file, and its right verdict.

Output: `Trap`, `Verdict`, and helpers for the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporter.manifest import Axis, ModelSpec
from exporter.records.record import Record, Stage, Status
from tests.worker.contracts import make_fill, declare_input, declare_output

ROOT = Path(__file__).resolve().parents[2]
#: Changes the exported file, or what lies beside it.
Tamper = Callable[[Path], None]

TORCHSCRIPT = 13
DYNAMO = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The expected content of the record of a cell."""

    status: Status
    stage: Stage | None = None
    check: str | None = None
    message: str = ""
    """A part of the message."""

    def differences(self, record: Record) -> list[str]:
        """Return the differences of a record from this verdict."""
        pairs = [
            ("status", self.status, record.status),
            ("stage", self.stage, record.stage),
            ("check", self.check, record.check),
        ]
        found = [f"{what}: {is_}, right is {right}" for what, right, is_ in pairs if right != is_]
        if self.message not in record.message:
            found.append(f"the message lacks '{self.message}'")
        return [*found, record.message] if found else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """One cell and its right verdict."""

    name: str
    story: str
    """The fault, or the reason why there is none: one sentence for the table."""
    spec: ModelSpec
    verdict: Verdict
    tamper: Tamper | None = None
    gap: str = ""
    """The reason why the verdict is not right yet, or ""."""

    @property
    def opset(self) -> int:
        """The one opset of the contract."""
        return self.spec.opsets[0]

    @property
    def is_sound(self) -> bool:
        """Whether it must be green."""
        return self.verdict.status is Status.PASS


SOUND = Verdict(status=Status.PASS)


def structure(check: str, message: str) -> Verdict:
    """The file itself breaks a promise."""
    return Verdict(status=Status.FAIL, stage=Stage.STRUCTURE, check=check, message=message)


def parity(check: str, message: str) -> Verdict:
    """The file computes something else."""
    return Verdict(status=Status.FAIL, stage=Stage.PARITY, check=check, message=message)


def inconclusive(check: str, message: str) -> Verdict:
    """Nothing that is computed proves anything."""
    return Verdict(status=Status.INCONCLUSIVE, stage=Stage.PARITY, check=check, message=message)


def refused(stage: Stage, message: str) -> Verdict:
    """A stage raised."""
    return Verdict(status=Status.ERROR, stage=stage, message=message)


def failed(stage: Stage, message: str) -> Verdict:
    """The model itself breaks a promise, before there is a file."""
    return Verdict(status=Status.FAIL, stage=stage, message=message)


def contract(source: str, opset: int = TORCHSCRIPT, **changes: object) -> ModelSpec:
    """A contract of one input and one output, both `[batch, 4]`, unless changed.

    Args:
        source: `loops.py:Turns`, a model in `models/`.
        opset: The one opset; 18 and up are dynamo's, below is TorchScript's.
        changes: Other fields of the contract.
    """
    values: dict[str, object] = {
        "id": "trap",
        # At the root, so that a model file has one name, here and in the tests.
        "manifest": "traps.toml",
        "line": 1,
        "source": f"tests/traps/models/{source}",
        "opsets": (opset,),
        "devices": ("cpu",),
        "inputs": (declare_input(),),
        "outputs": (declare_output("y", "batch", 4),),
        "axes": (Axis(name="batch", example=3),),
        "timeout": 60.0,
    }
    return ModelSpec.model_validate(values | changes)


__all__ = [
    "DYNAMO",
    "ROOT",
    "SOUND",
    "TORCHSCRIPT",
    "Tamper",
    "Trap",
    "Verdict",
    "contract",
    "failed",
    "make_fill",
    "declare_input",
    "inconclusive",
    "parity",
    "declare_output",
    "refused",
    "structure",
]
