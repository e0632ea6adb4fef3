"""The diagnosis of a failure as the page of a model and `index.html` show it."""

from __future__ import annotations

import math

from exporter.core.text import format_two_digits, join_names
from exporter.manifest import Project
from exporter.records.record import Divergence, Record
from exporter.report import formats
from exporter.report.rows import failures
from exporter.report.rows.cells import Row

#: Lines of a detail on the page. The end of a log is its most useful part.
_DETAIL_LINES = 20
#: Characters. Two texts that share a prefix of this length count as repetition.
_REPEATED_PREFIX = 40


def explain_failure(record: Record, project: Project | None = None) -> Row:
    """Return the diagnosis of a failure; a value is empty if it is unknown."""
    blame = record.blame
    evidence = blame.evidence if blame else ()
    message = formats.clean_message(record.message)
    return {
        "code": record.failure_code,
        "culprit": failures.name_culprit(blame.culprit) if blame else "",
        # The input set that shows the failure.
        "sample": blame.sample if blame else "",
        "evidence": tuple(
            replace_repetition(formats.clean_message(line), message) for line in evidence
        ),
        # The first node that differs, as a sentence without its period.
        "divergence": describe_divergence(blame.first) if blame and blame.first else "",
        "missing_operators": tuple(
            {
                "operator": item.operator,
                "count": item.count,
                "sources": join_names(item.sources, failures.LISTED_LINES),
            }
            for item in record.missing
        ),
        # Every place at which the model cannot be captured.
        "obstacles": tuple(formats.clean_message(line) for line in record.obstacles),
        "advice": tuple(line for line in record.advice if line not in record.message),
        "lines": failures.find_model_lines(record),
        # Empty if there is no failure to reproduce.
        "repro_command": failures.format_repro_command(record, project),
    }


def describe_divergence(first: Divergence) -> str:
    """Return the first node that differs, as text.

    Returns:
        `Gemm node_linear_5 (net.py:12): against PyTorch, ≤ 1e-6 before it and 0.07 ...`
    """
    source = f" ({first.source})" if first.source else ""
    among = f", or one of the {first.suspects - 1} nodes before it" if first.suspects > 1 else ""
    before = formats.format_magnitude(first.error_before) if first.error_before else "no error"
    if math.isinf(first.error_after):
        after = "a clearly different result"
    else:
        after = f"{format_two_digits(first.error_after)} of the scale"
    return (
        f"{first.operator} {first.node}{source}{among}: "
        f"against {first.against}, {before} before it and {after} after it"
    )


def keep_last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_DETAIL_LINES:])


def replace_repetition(text: str, earlier: str) -> str:
    """Return the text with `as above` for the part that repeats an earlier text.

    Either text may be truncated.
    """
    head = earlier[:_REPEATED_PREFIX]
    start = text.find(head)
    if len(head) < _REPEATED_PREFIX or start < 0:
        return text
    rest, full = text[start:].rstrip("…"), earlier.rstrip("…")
    if full.startswith(rest):
        return f"{text[:start]}as above"
    return f"{text[:start]}as above{rest[len(full) :]}" if rest.startswith(full) else text
