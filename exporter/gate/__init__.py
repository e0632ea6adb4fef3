"""Results against what was accepted: what changed, and what becomes of it."""

from exporter.gate.accept import accept_all, accept_some
from exporter.gate.compare import differences, judge
from exporter.gate.compare_revision import Side, judge_against
from exporter.gate.finding import (
    GROWTH,
    NO_RESULT,
    NOT_ACCEPTED,
    GateFinding,
    Kind,
    blocking,
)
from exporter.gate.relaxations import relaxations

__all__ = [
    "GROWTH",
    "NOT_ACCEPTED",
    "NO_RESULT",
    "GateFinding",
    "Kind",
    "Side",
    "accept_all",
    "accept_some",
    "blocking",
    "differences",
    "judge",
    "judge_against",
    "relaxations",
]
