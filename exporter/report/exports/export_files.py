"""The files of a report for other programs; nothing is written here."""

from __future__ import annotations

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import collect_cells

JUNIT = "junit.xml"
CSV = "results.csv"
MATRIX = "matrix.svg"
BADGE = "badge"
#: The folder of the models' badges. Only files that begin with a mark belong to the report.
BADGES = "badges"
#: The folder of the charts of models with measurements.
CHARTS = "charts"
SVG_MARK = "<!-- Written by `exporter report` from the results -->\n"
JSON_MARK = '{\n  "schemaVersion": 1,\n  "label": '


def render_exports(
    manifest: Manifest, run: RunRecord, history: AcceptanceHistory | None = None
) -> dict[str, str | bytes]:
    """Return every file by its name relative to the reports folder.

    Args:
        manifest: The promises.
        run: The results.
        history: The accepted outcomes; if None, the files do not contain them.

    Raises:
        ExporterError: ENVIRONMENT, if a plugin cannot be loaded or returns an invalid file name.
    """
    # Commands without a report do not need these modules.
    from exporter.report.exports.csv_export import format_csv
    from exporter.report.exports.junit import format_junit
    from exporter.report.exports.pictures import (
        create_model_badge,
        create_project_badge,
        draw_badge,
        draw_matrix,
        format_badge_json,
    )
    from exporter.report.exports.plugins import render_plugin_files

    by_model = collect_cells(manifest, run)
    cells = [cell for each in by_model.values() for cell in each]
    badges = {f"{BADGES}/{id}": create_model_badge(id, each) for id, each in by_model.items()}
    badges[BADGE] = create_project_badge(cells)
    return {
        JUNIT: format_junit(manifest, by_model, history or AcceptanceHistory()),
        CSV: format_csv(cells),
        MATRIX: draw_matrix(by_model, SVG_MARK),
        **{f"{name}.svg": draw_badge(badge, SVG_MARK) for name, badge in badges.items()},
        **{f"{name}.json": format_badge_json(badge) for name, badge in badges.items()},
        **render_plugin_files(manifest, run),
    }
