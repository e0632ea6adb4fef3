"""All traps, and their page for readers.

Output: `GROUPS`, `ALL`, and `page()`, the text of `docs/traps.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.traps import (
    branches,
    comparators,
    components,
    data,
    derived_axes,
    detection,
    ends,
    fusions,
    graphs,
    headers,
    histories,
    kinds,
    masks,
    numbers,
    passes,
    rollouts,
    rounding,
    signatures,
    sizes,
    states,
    ties,
    values,
)
from tests.traps.trap import ROOT, Trap

PAGE = ROOT / "docs" / "traps.md"

#: The traps by heading, in the order of the page.
GROUPS: dict[str, tuple[Trap, ...]] = {
    "Values that stay in the file": values.VALUES,
    "Ends of ranges": ends.ENDS,
    "Masks and lengths": masks.MASKS,
    "Sizes that stay in the file": sizes.SIZES,
    "Branches on sizes": branches.BRANCHES,
    "Sizes that other sizes determine": derived_axes.DERIVED_AXES,
    "Inputs and outputs": signatures.SIGNATURES,
    "Kinds of values": kinds.KINDS,
    "Numbers at the edge": numbers.NUMBERS,
    "Rounding of one sample": rounding.ROUNDING,
    "Ties and exact operators": ties.TIES,
    "Detectors": detection.DETECTION,
    "Comparators": comparators.COMPARATORS,
    "Passes after the export": passes.PASSES,
    "Metrics": comparators.METRICS,
    "Rollouts": rollouts.ROLLOUTS,
    "Components of transformers": components.COMPONENTS,
    "Chance and state": (*states.STATES, *histories.HISTORIES),
    "Graphs that were changed": graphs.GRAPHS,
    "Weights that were changed": graphs.WEIGHTS,
    "Headers and signatures that were changed": headers.HEADERS,
    "Fusions of the exporter's optimizer": fusions.FUSIONS,
    "External data": data.DATA,
}
ALL = tuple(trap for traps in GROUPS.values() for trap in traps)
#: Models that must be green with every seed.
SOUND_MODELS = tuple(trap for trap in ALL if trap.is_sound and trap.tamper is None)

_HEAD = """# Traps

Models and files that look right and are wrong, each with its right verdict, and similar sound
models, which must be green. `tests/traps/` runs all of them and compares every record with this
table. `python -m tests.traps` writes the page from the same table.

{traps} traps, {sound_count} sound models. {thorough} of the traps are found only with `thorough`;
the column "created by" marks them.{gaps}
"""
_GAPS = """
**{gaps} of the traps are not found yet**: their row contains the right verdict and the reason."""


def page() -> str:
    return "\n".join([*_lines()]) + "\n"


def _lines() -> Iterator[str]:
    sound_count = sum(trap.is_sound for trap in ALL)
    gaps = sum(bool(trap.gap) for trap in ALL)
    yield _HEAD.format(
        traps=len(ALL) - sound_count,
        sound_count=sound_count,
        thorough=sum(trap.spec.thorough and not trap.is_sound for trap in ALL),
        gaps=_GAPS.format(gaps=gaps) if gaps else "",
    )
    for heading, traps in GROUPS.items():
        yield f"## {heading}\n"
        yield "| trap | story | created by | right verdict | at | part of the message |"
        yield "|---|---|---|---|---|---|"
        for trap in traps:
            yield _row(trap)
        yield ""


def _row(trap: Trap) -> str:
    verdict = trap.verdict
    position = " / ".join(str(part) for part in (verdict.stage, verdict.check) if part)
    exporter = trap.package or ("dynamo" if trap.opset >= 18 else "TorchScript")
    created_by = f"{exporter} {trap.opset}{', changed' if trap.tamper else ''}"
    created_by += ", thorough" if trap.spec.thorough else ""
    story = f"{trap.story}. **Not caught yet:** {trap.gap}" if trap.gap else trap.story
    message = f"`{verdict.message}`" if verdict.message else ""
    cells = (trap.name, story, created_by, str(verdict.status), position, message)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def write() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
