"""Print what an export would do with each cell.

Input: a `BuildPlan`. Output: a line for each selected cell, and the counts.
"""

from __future__ import annotations

from exporter.cli.output.terminal import print_line, print_table
from exporter.core.text_format import pluralize
from exporter.usecases.build_plan import BuildPlan


def show_plan(build_plan: BuildPlan) -> None:
    """Print the decision for each selected cell, its route and the reason."""
    plan, decisions = build_plan.plan, build_plan.decisions
    rows = []
    for planned in plan.selected:
        cell, name = planned.cell, str(planned.cell)
        route = f"{planned.route.exporter} {planned.route.capture}"
        if not planned.route.is_export:
            route = planned.route.title
        if planned.skip:
            rows.append((name, "skip", "", planned.skip))
        elif decisions.is_to_run(planned):
            rows.append((name, "run", route, decisions.reasons[cell]))
        elif hit := decisions.hits.get(cell):
            rows.append((name, "restore", route, f"from the store: {hit.reason}"))
        else:
            rows.append((name, "keep", route, "up to date"))
    print_table(rows)
    run, restored = len(decisions.to_run), len(decisions.hits)
    unchanged = len(plan.to_run) - run - restored
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{pluralize(run, 'cell')} to run, {unchanged} to keep, {skipped} to skip"
    print_line(f"{counts}, {restored} to restore from the store" if restored else counts)
