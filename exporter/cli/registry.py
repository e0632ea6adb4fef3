"""The group of all commands; each command is imported when it is used."""

from __future__ import annotations

import importlib

import click

from exporter.core.errors import suggest_nearest

#: The function of each command in `exporter.cli.commands`.
_FUNCTIONS = {
    "init": "init.init",
    "record": "record.record",
    "add": "record.add",
    "export": "export.export",
    "plan": "inspection.plan",
    "check": "inspection.check",
    "list": "inspection.list_cells",
    "explain": "inspection.explain",
    "schema": "inspection.schema",
    "guide": "inspection.guide",
    "show": "inspection.show",
    "report": "report.report",
    "gate": "gate.gate",
    "baseline": "baseline.baseline",
    "merge": "report.merge",
    "diff": "diff.diff",
    "rehearse": "rehearse.rehearse",
    "publish": "publish.publish",
    "verify": "verify.verify",
    "evidence": "verify.evidence",
    "repro": "repro.repro",
    "expectations": "expectations.expectations",
    "ops": "ops.ops",
    "environments": "environments.environments",
    "gc": "gc.gc",
    "doctor": "doctor.doctor",
}

#: The next step after a command by its exit code. Other commands print a document or their own.
NEXT_STEPS = {
    ("doctor", 0): "prove all models: `exporter export`",
    ("check", 0): "see the cells that would run: `exporter plan`",
    ("list", 0): "see the cells that would run: `exporter plan`",
    ("plan", 0): "prove the models: `exporter export`",
    ("explain", 0): "prove the cell: `exporter export`",
    ("record", 0): "export and prove all models: `exporter export`",
    ("add", 0): "export and prove all models: `exporter export`",
    ("export", 0): "compare with the accepted results: `exporter gate`",
    ("export", 1): "fix the red cells, then prove them: `exporter export`",
    ("merge", 0): "compare with the accepted results: `exporter gate`",
    ("report", 0): "compare with the accepted results: `exporter gate`",
    ("gate", 0): "write proved files for other tools: `exporter publish DEST`",
    ("baseline", 0): "commit the baseline; in each branch: `exporter gate`",
    ("publish", 0): "prove the folders on another machine: `exporter verify DEST`",
    ("evidence", 0): "write the tables: `exporter report`",
    ("rehearse", 0): "upgrade the packages, then: `exporter export`",
    ("gc", 0): "build the removed files that you need: `exporter export`",
}


class Commands(click.Group):
    """A group that imports only the command that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of their use."""
        return list(_FUNCTIONS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with that name, or None if it does not exist."""
        if cmd_name not in _FUNCTIONS:
            return None
        module, _, function = _FUNCTIONS[cmd_name].rpartition(".")
        command: click.Command = getattr(
            importlib.import_module(f"exporter.cli.commands.{module}"), function
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names.

        Raises:
            click.UsageError: The command does not exist; the message suggests a similar one.
        """
        if args and args[0] not in _FUNCTIONS and not args[0].startswith("-"):
            ctx.fail(f"there is no command '{args[0]}'{suggest_nearest(args[0], _FUNCTIONS)}")
        return super().resolve_command(ctx, args)


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    from importlib.metadata import PackageNotFoundError, version

    if value and not context.resilient_parsing:
        try:
            click.echo(f"exporter {version('onnx-exporter-matrix')}")
        except PackageNotFoundError:
            click.echo("exporter, not installed")
        context.exit()


_EXIT_CODES = """\b
Exit codes:
  0    success
  1    red cells, or findings of the gate
  2    a manifest, a setting or the command line is wrong
  3    nothing is selected
  4    a package, a device or a permission is missing
  5    a stored file cannot be read, or there are no results yet
  70   a bug of exporter
  130  interrupted; finished results are kept
"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def exporter() -> None:
    """Build every ONNX file that the manifests declare, and prove its promises."""
