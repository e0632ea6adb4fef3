"""`exporter export`: builds and proves the selected cells, and writes the reports.

Where nothing was touched since the last one, it says what that one said, and loads nothing more.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exporter.cli.options.selection import (
    no_store_option,
    root_option,
    selection_options,
    get_today,
)
from exporter.cli.options.shards import shard_option
from exporter.cli.output.terminal import print_line
from exporter.cli.workflows.noop import load_noop_summary
from exporter.planning.selection import Selection
from exporter.processes import (
    ForkServerStarter,
    ProcessStarter,
    Spawner,
    make_worker_environment,
)

if TYPE_CHECKING:
    from exporter.planning.shards import Shard


@click.command()
@selection_options
@root_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Workers at once.  [default: by cores and memory]",
)
@shard_option
@click.option("--dry-run", is_flag=True, help="Only show what would run, like `plan`.")
@click.option("--force", is_flag=True, help="Run cells whose result still holds, too.")
@click.option("--thorough", is_flag=True, help="Try more sizes and values; takes longer.")
@no_store_option
@click.option("--explain", is_flag=True, help="Say why each cell runs that does.")
def command(
    selection: Selection, root: Path, jobs: int | None, shard: Shard | None, **flags: bool
) -> int:
    """Build and prove the files of CELLS, or of all of them.

    CELLS are globs over cell ids, such as 'alexnet', 'resnet*/18' or '*/*/cpu'. A cell whose
    result still holds is left as it is, and one that was made before from the same is taken from
    the store.
    """
    asks_more = shard or flags["dry_run"] or flags["force"] or flags["thorough"]
    if selection.is_everything and not asks_more and (said := load_noop_summary(root, get_today())):
        for line, colour in said.lines:
            print_line(line, color=colour)
        return said.code
    with closing(_starter()) as starter:
        if not flags["dry_run"]:
            # Seconds pass until the first worker can start: it is decided meanwhile whether one
            # has to.
            starter.prepare()
        # What an export takes is loaded only now.
        from exporter.cli.workflows.export import ExportOptions, build_and_prove

        asked = ExportOptions(
            selection=selection,
            jobs=jobs,
            shard=shard,
            dry_run=flags["dry_run"],
            force=flags["force"],
            thorough=flags["thorough"],
            explain=flags["explain"],
            no_store=flags["no_store"],
        )
        return build_and_prove(root, asked, starter)


def _starter() -> ProcessStarter:
    """Warm workers where processes can fork and the kernel ends children with their parent."""
    environment = make_worker_environment(os.environ)
    return ForkServerStarter(environment) if sys.platform == "linux" else Spawner(environment)
