"""Split off; to be described."""

from __future__ import annotations

from exporter.build import (
    Decisions,
)
from exporter.cli.output.terminal import align_columns, print_line
from exporter.core.text_format import pluralize
from exporter.planning.plan import Plan


def show_plan(plan: Plan, decisions: Decisions) -> None:
    """One line per selected cell: whether it runs, its exporter, and why."""
    rows = []
    for planned in plan.selected:
        name = str(planned.cell)
        route = f"{planned.route.exporter} {planned.route.capture}"
        if planned.skip:
            rows.append((name, "skip", "", planned.skip))
        elif decisions.is_to_run(planned):
            rows.append((name, "run", route, decisions.reasons[name]))
        elif hit := decisions.hits.get(name):
            rows.append((name, "take", route, f"taken from the store: {hit.why}"))
        else:
            rows.append((name, "keep", route, "nothing that it depends on changed"))
    for line in align_columns(rows):
        print_line(line)
    taken = len(decisions.hits)
    kept = len(plan.to_run) - len(decisions.to_run) - taken
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{pluralize(len(decisions.to_run), 'cell')} to run, {kept} to keep, {skipped} to skip"
    print_line(f"{counts}, {taken} to take from the store" if taken else counts)
