"""The card of a published file: what it takes and gives, how it was proved, how to check it.

In: a `Content`. Out: markdown, from the template `card.md`, which a project may replace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exporter.report.pages.templates import render
from exporter.report.rows.contract import contract
from exporter.report.text import number_format as figures
from exporter.tools.publish.published_folder import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One device, and what was held against the file there."""

    device: str
    outcome: str
    checks: tuple[str, ...]


def card(content: Content, templates: Path) -> str:
    """The text of the card.

    Raises:
        ExporterError: MANIFEST, where the template is wrong.
    """
    candidate = content.candidate
    proofs = tuple(
        Proof(
            device=record.cell.device,
            outcome=record.status.value,
            checks=tuple(check.check for check in record.checks if check.status.is_green),
        )
        for record in candidate.records
    )
    route = candidate.records[0].route
    return render(
        "card.md",
        templates,
        spec=content.spec,
        contract=contract(content.spec),
        opset=candidate.opset,
        warning=candidate.warning,
        artifact=candidate.artifact,
        size=figures.size(candidate.artifact.bytes),
        exporter=f"{route.exporter}, {route.capture}" if route else "",
        allowed=content.allowed,
        sets=content.sets,
        proofs=proofs,
        tools=content.tools,
    )
