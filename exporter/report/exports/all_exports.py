"""The files of a report that other programs read, as text; nothing is written here.

In: a `Manifest` and a `RunRecord`. Out: relative file name -> text; the same in gives the same out.
"""

from __future__ import annotations

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import collect_cells

JUNIT = "junit.xml"
CSV = "results.csv"
MATRIX = "matrix.svg"
BADGE = "badge"
#: The folder of the models' badges. Only files that begin as ours do are ours there.
BADGES = "badges"
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
JSON_MARK = '{\n  "schemaVersion": 1,\n  "label": '


def render_exports(
    manifest: Manifest, run: RunRecord, past: AcceptanceHistory | None = None
) -> dict[str, str]:
    """Every such file, by its name relative to the reports folder.

    Args:
        manifest: What is promised.
        run: What was found.
        past: What was accepted before; None: nothing is said of it.
    """
    # What only a report needs is loaded when there is one.
    from exporter.report.exports.badges import (
        create_model_badge,
        create_project_badge,
        draw_badge,
        format_badge_json,
    )
    from exporter.report.exports.csv_export import format_csv
    from exporter.report.exports.junit import format_junit
    from exporter.report.exports.matrix_svg import draw_matrix

    by_model = collect_cells(manifest, run)
    every = [cell for cells in by_model.values() for cell in cells]
    badges = {f"{BADGES}/{id}": create_model_badge(id, cells) for id, cells in by_model.items()}
    badges[BADGE] = create_project_badge(every)
    return {
        JUNIT: format_junit(manifest, by_model, past or AcceptanceHistory()),
        CSV: format_csv(every),
        MATRIX: draw_matrix(by_model, SVG_MARK),
        **{f"{name}.svg": draw_badge(badge, SVG_MARK) for name, badge in badges.items()},
        **{f"{name}.json": format_badge_json(badge) for name, badge in badges.items()},
    }
