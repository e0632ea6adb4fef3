"""Count the small changes of files that the checks catch: `python -m benchmarks.audit CELLS`.

The files of a finished export are changed in a private folder. The exit code is 1 if the checks
catch too few of the changes of a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.audit.audit_run import AuditFailure, audit_cell
from benchmarks.audit.results import Audit, MutantOutcome
from exporter.cli.output.terminal import align_columns
from exporter.commands.toolchains import select_suffix
from exporter.core.device_name import CURRENT
from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from exporter.planning import Selection
from exporter.planning.plan import make_plan


def main(arguments: Sequence[str]) -> int:
    """Audit the cells that the arguments name."""
    parser = argparse.ArgumentParser(prog="audit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cells", nargs="+", help="ids or globs, such as resnet18/18")
    parser.add_argument("--mutants", type=int, default=200, help="number of mutants of each file")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutants")
    parser.add_argument("--threshold", type=float, default=0.98, help="share that must be caught")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    options = parser.parse_args(arguments)
    try:
        # The checks run with the current packages.
        manifest = select_suffix(load_project(options.root), CURRENT)
        plan = make_plan(manifest, Selection(patterns=tuple(options.cells)))
        worst = 1.0
        for planned in plan.to_run:
            audit = audit_cell(manifest, planned.cell, options.mutants, options.seed)
            print("\n".join(_format(audit)), flush=True)
            worst = min(worst, audit.share)
    except (ExporterError, AuditFailure) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if worst >= options.threshold else 1


def _format(audit: Audit) -> list[str]:
    """Return the counts by kind, the checks that caught mutants, and the survivors."""
    rows = [("KIND", *MutantOutcome)]
    for kind, counts in audit.count_outcomes().items():
        rows.append((kind, *(str(counts[outcome]) for outcome in MutantOutcome)))
    checks = ", ".join(f"{check} {count}" for check, count in audit.count_checks().items())
    shares = (
        f"caught {audit.share:.1%} of those that break the contract, "
        f"{audit.share_of_moved:.1%} of those that change an output"
    )
    return [
        *align_columns(rows),
        f"caught by {checks}",
        *(f"survived: {each.kind}: {each.change}: {each.reason}" for each in audit.survivors),
        f"{audit.cell}: {len(audit.results)} mutants; {shares}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
