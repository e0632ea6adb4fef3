"""The list of commands; each is imported when it is used, so that none waits for the others.

In: the name of a command. Out: the command.
"""

from __future__ import annotations

import importlib

import click

from exporter.core.errors import suggest_nearest

#: Command -> its module in `exporter.cli.commands`.
_MODULES = {
    "export": "export",
    "plan": "plan",
    "check": "check",
    "list": "list_cells",
    "explain": "explain",
    "show": "show",
    "report": "report",
    "gate": "gate",
    "baseline": "baseline",
    "merge": "merge",
    "diff": "diff",
    "publish": "publish",
    "repro": "repro",
    "expectations": "expectations",
    "audit": "audit",
    "ops": "ops",
    "gc": "gc",
    "doctor": "doctor",
}


class Commands(click.Group):
    """Finds commands by name without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of their use."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None where there is none."""
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"exporter.cli.commands.{_MODULES[cmd_name]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names.

        Raises:
            click.UsageError: There is none of that name; the message has the nearest.
        """
        if args and args[0] not in _MODULES and not args[0].startswith("-"):
            ctx.fail(f"there is no command '{args[0]}'{suggest_nearest(args[0], _MODULES)}")
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
  0    fine
  1    red cells, or findings of the gate
  2    a manifest, a setting or the command line is wrong
  3    nothing is selected
  4    the environment lacks something
  5    a stored file cannot be read, or there are no results yet
  70   a bug of exporter
  130  interrupted; what was done before is kept
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
    """Builds every ONNX file that the manifests promise, and proves each promise."""
