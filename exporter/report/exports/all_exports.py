"""The files of a report that other programs read, as text; nothing is written here.

In: a `Manifest` and a `RunRecord`. Out: relative file name -> text; the same in gives the same out.
"""

from __future__ import annotations

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import cells_by_model

JUNIT = "junit.xml"
CSV = "results.csv"
MATRIX = "matrix.svg"
BADGE = "badge"
#: The folder of the models' badges. Only files that begin as ours do are ours there.
BADGES = "badges"
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
JSON_MARK = '{\n  "schemaVersion": 1,\n  "label": '


def render_outputs(
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
        badge_json,
        badge_of_all,
        badge_of_model,
        badge_svg,
    )
    from exporter.report.exports.csv_export import results_csv
    from exporter.report.exports.junit import junit
    from exporter.report.exports.matrix_svg import matrix_svg

    by_model = cells_by_model(manifest, run)
    every = [cell for cells in by_model.values() for cell in cells]
    badges = {f"{BADGES}/{id}": badge_of_model(id, cells) for id, cells in by_model.items()}
    badges[BADGE] = badge_of_all(every)
    return {
        JUNIT: junit(manifest, by_model, past or AcceptanceHistory()),
        CSV: results_csv(every),
        MATRIX: matrix_svg(by_model, SVG_MARK),
        **{f"{name}.svg": badge_svg(badge, SVG_MARK) for name, badge in badges.items()},
        **{f"{name}.json": badge_json(badge) for name, badge in badges.items()},
    }
