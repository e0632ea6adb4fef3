"""A trap: a broken contract or a changed file, and its right verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from exporter.manifest import Axis, ModelSpec
from exporter.records.record import Record, Stage, Status
from tests.worker.contracts import declare, declare_input, declare_output, make_fill

ROOT = Path(__file__).resolve().parents[2]
#: Changes the exported file or its external data.
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
        pairs = [
            ("status", self.status, record.status),
            ("stage", self.stage, record.stage),
            ("check", self.check, record.check),
        ]
        problems = [
            f"{name}: {actual}, right is {right}"
            for name, right, actual in pairs
            if right != actual
        ]
        if self.message not in record.message:
            problems.append(f"the message lacks '{self.message}'")
        return [*problems, record.message] if problems else []


SOUND = Verdict(status=Status.PASS)


@dataclass(frozen=True, slots=True)
class Trap:
    """One cell and its right verdict."""

    name: str
    story: str
    """The fault, or the reason why there is none: one sentence for the table."""
    spec: ModelSpec
    verdict: Verdict = SOUND
    tamper: Tamper | None = None
    gap: str = ""
    """The reason why the verdict is not right yet, or ""."""
    package: str = ""
    """The package that it needs in addition; without it, the trap is skipped. See `zoo`."""
    repaired: tuple[int, int] | None = None
    """The first release of torch that exports the model rightly."""

    @property
    def installed_verdict(self) -> Verdict:
        """Return the right verdict with the installed torch."""
        installed = tuple(int(part) for part in version("torch").split(".")[:2])
        return SOUND if self.repaired and installed >= self.repaired else self.verdict

    @property
    def opset(self) -> int:
        return self.spec.opsets[0]

    @property
    def is_sound(self) -> bool:
        return self.verdict.status is Status.PASS


def structure(check: str, message: str) -> Verdict:
    """Return the verdict on a file that breaks a promise."""
    return Verdict(status=Status.FAIL, stage=Stage.STRUCTURE, check=check, message=message)


def parity(check: str, message: str) -> Verdict:
    """Return the verdict on a file that computes another function."""
    return Verdict(status=Status.FAIL, stage=Stage.PARITY, check=check, message=message)


def inconclusive(check: str, message: str) -> Verdict:
    """Return the verdict on outputs that prove nothing."""
    return Verdict(status=Status.INCONCLUSIVE, stage=Stage.PARITY, check=check, message=message)


def refused(stage: Stage, message: str) -> Verdict:
    """Return the verdict on a stage that raises an error."""
    return Verdict(status=Status.ERROR, stage=stage, message=message)


def failed(stage: Stage, message: str) -> Verdict:
    """Return the verdict on a model that breaks a promise before there is a file."""
    return Verdict(status=Status.FAIL, stage=stage, message=message)


def contract(
    source: str, opset: int = TORCHSCRIPT, signature: str = "", **changes: object
) -> ModelSpec:
    """Return a contract with one input and one output, both `[batch, 4]` by default.

    Args:
        source: `loops.py:Turns`, a model in `models/`.
        opset: The one opset. From 18 on dynamo exports it, below TorchScript.
        signature: Inputs and outputs in the form of `declare`.
        changes: Other fields of the contract.
    """
    values: dict[str, object] = {
        "id": "trap",
        # At the root, because the tests import model files by the same name.
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
    declared = declare(signature) if signature else {}
    return ModelSpec.model_validate(values | declared | changes)


def traps(
    name: str, story: str, source: str, verdict: Verdict = SOUND, **changes: Any
) -> tuple[Trap, Trap]:
    """Return a trap for each exporter, which have one verdict."""
    torchscript, dynamo = (
        Trap(f"{name}{suffix}", story, contract(source, opset, **changes), verdict)
        for opset, suffix in ((TORCHSCRIPT, ""), (DYNAMO, " under dynamo"))
    )
    return torchscript, dynamo


__all__ = [
    "DYNAMO",
    "ROOT",
    "SOUND",
    "TORCHSCRIPT",
    "Tamper",
    "Trap",
    "Verdict",
    "contract",
    "declare",
    "declare_input",
    "declare_output",
    "failed",
    "inconclusive",
    "make_fill",
    "parity",
    "refused",
    "structure",
    "traps",
]
