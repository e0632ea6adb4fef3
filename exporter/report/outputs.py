"""The files of a report that other programs read, as text; nothing is written here.

In: a `Manifest` and a `RunRecord`. Out: relative file name -> text; the same in gives the same out.
"""

from __future__ import annotations

from exporter.manifest import Manifest
from exporter.record import RunRecord
from exporter.report.cells import cells_by_model

JUNIT = "junit.xml"
CSV = "results.csv"


def render_outputs(manifest: Manifest, run: RunRecord) -> dict[str, str]:
    """Every such file, by its name relative to the reports folder."""
    # What only a report needs is loaded when there is one.
    from exporter.report.junit import junit
    from exporter.report.spreadsheet import results_csv

    by_model = cells_by_model(manifest, run)
    return {
        JUNIT: junit(manifest, by_model),
        CSV: results_csv(cell for cells in by_model.values() for cell in cells),
    }
