"""Print what an export would do with each cell."""

from __future__ import annotations

from exporter.cli.output.terminal import print_line, print_table
from exporter.core.text import pluralize
from exporter.records.record import CellId
from exporter.report.rows.opset_groups import group_by_opset
from exporter.usecases.build_plan import BuildPlan


def show_plan(build_plan: BuildPlan) -> None:
    """Print the counts, then the decision, the route and the reason of each group of opsets."""
    plan, decisions = build_plan.plan, build_plan.decisions
    run, restored = len(decisions.to_run), len(decisions.hits)
    unchanged = len(plan.to_run) - run - restored
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{pluralize(run, 'cell')} to run, {unchanged} to keep, {skipped} to skip"
    print_line(f"{counts}, {restored} to restore from the store" if restored else counts)
    rows: list[tuple[CellId, tuple[str, str, str]]] = []
    for planned in plan.selected:
        cell = planned.cell
        route = f"{planned.route.exporter} {planned.route.capture}"
        if not planned.route.is_export:
            route = planned.route.title
        if planned.skip:
            rows.append((cell, (planned.skip_status.value, "", planned.skip)))
        elif decisions.is_to_run(planned):
            rows.append((cell, ("run", route, decisions.reasons[cell])))
        elif hit := decisions.hits.get(cell):
            rows.append((cell, ("restore", route, f"from the store: {hit.reason}")))
        else:
            rows.append((cell, ("keep", route, "up to date")))
    for note in build_plan.notes:
        print_line(note)
    groups = group_by_opset(rows, lambda row: row[0], lambda row: row[1])
    print_table((group.label, *group.first[1]) for group in groups)
