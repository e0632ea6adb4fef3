"""The export of another environment: a build folder of its own, and no tables.

`run_nested_export` starts this command with the Python of the environment.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import click

from exporter import program
from exporter.cli.entry_point import main
from exporter.cli.options import read_environment_names, root_option
from exporter.cli.output.export_result import print_result
from exporter.cli.output.line_progress import LineProgress
from exporter.cli.output.progress import observe_progress
from exporter.commands.toolchains import select_suffix
from exporter.core.device_name import CURRENT
from exporter.export_options import ExportOptions
from exporter.manifest import Manifest, ModelSpec
from exporter.manifest.resolved.model import Override
from exporter.manifest.rules.sources import EXPORTER_OPTIONS
from exporter.manifest.syntax.values import CAPTURES, ExporterName
from exporter.pipeline.toolchain_export import DONE
from exporter.planning import Selection
from exporter.processes.fork_server_client import make_starter
from exporter.records.record import Record


@click.command()
@click.argument("cells", nargs=-1)
@root_option
@click.option("--build", type=click.Path(path_type=Path), required=True)
@click.option("--suffix", required=True)
@click.option("--exporter", type=click.Choice(["dynamo", "torchscript"]))
@click.option("--jobs", type=int)
@click.option("--force", is_flag=True)
@click.option("--thorough", is_flag=True)
@click.option("--no-store", is_flag=True)
def export(  # noqa: PLR0913 - one parameter for each option
    *,
    cells: tuple[str, ...],
    root: Path,
    build: Path,
    suffix: str,
    exporter: ExporterName | None,
    jobs: int | None,
    force: bool,
    thorough: bool,
    no_store: bool,
) -> int:
    """Export the cells of one suffix; for a device without one, print the summary."""

    def adapt(manifest: Manifest) -> Manifest:
        manifest = select_suffix(manifest, suffix)
        return select_exporter(manifest, exporter) if exporter else manifest

    started = time.monotonic()
    options = ExportOptions(
        selection=Selection(patterns=cells),
        engine="local",
        jobs=jobs,
        force=force,
        thorough=thorough,
        use_store=not no_store,
        build=build,
        adapt_manifest=adapt,
    )
    with closing(make_starter(os.environ, read_environment_names(root))) as starter:
        starter.prepare()
        if suffix != CURRENT:
            program.export(root, options, _ModelEvents(), starter, os.environ)
            return 0
        with observe_progress(explain=False) as observer:
            result = program.export(root, options, observer, starter, os.environ)
        return print_result(result, started, timings=False, quiet=False, has_tables=False).code


class _ModelEvents(LineProgress):
    """Prints one line for each finished model, which the export of another process reads."""

    def on_cell_done(self, record: Record) -> None:
        """Do nothing: the other process reads the record."""

    def on_model_done(self, model: str) -> None:
        self.print(f"{DONE}{model}")


_Settings = TypeVar("_Settings", ModelSpec, Override)


def select_exporter(manifest: Manifest, exporter: ExporterName) -> Manifest:
    """Return the manifest with all models exported by one exporter.

    Captures and options of the other exporter are dropped.
    """
    models = (
        model  # a model that generates has one exporter
        if model.generate
        else _drop_others(model, exporter).model_copy(
            update={
                "exporter": exporter,
                "overrides": tuple(_drop_others(each, exporter) for each in model.overrides),
            }
        )
        for model in manifest.models
    )
    return Manifest(project=manifest.project, models=tuple(models), problems=manifest.problems)


def _drop_others(settings: _Settings, exporter: ExporterName) -> _Settings:
    options, is_own = settings.options, settings.capture in CAPTURES[exporter]
    update = {
        "exporter": settings.exporter if settings.exporter == exporter else None,
        "capture": settings.capture if is_own else None,
        "options": {key: options[key] for key in options if key in EXPORTER_OPTIONS[exporter]},
    }
    return settings.model_copy(update=update)


if __name__ == "__main__":
    main(export)
