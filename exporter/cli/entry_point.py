"""The group of all commands, and the entry point: exit codes, interrupts and bugs."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import click

from exporter.cli.output.terminal import (
    PROJECT_ROOT,
    is_terminal,
    print_error,
    print_line,
    print_problem,
)
from exporter.core.errors import (
    RESULTS_NOTE,
    ExitCode,
    ExporterError,
    StoppedByFailure,
    shorten_problems,
    suggest_nearest,
)
from exporter.core.files import describe_owner
from exporter.core.import_object import COMMAND_GROUP, PluginError, find_plugins, load_plugin
from exporter.core.toml_table import find_root

#: The commands by their group in `--help`, with the functions of their modules. Packages add others
#: by the entry points `exporter.commands`, in the same notation: `name = "module:function"`.
_GROUPS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "init": "commands.recording.init_command:init",
        "record": "commands.recording.command:record",
        "add": "commands.recording.command:add",
        "doctor": "commands.doctor.command:doctor",
        "guide": "commands.inspection_command:guide",
        "schema": "commands.inspection_command:schema",
    },
    "Work": {
        "export": "cli.commands.export:export",
        "plan": "commands.inspection_command:plan",
        "check": "commands.inspection_command:check",
        "list": "commands.inspection_command:list_cells",
        "report": "commands.report_command:report",
        "merge": "commands.merge:merge",
        "gc": "commands.gc.command:gc",
    },
    "Gate": {
        "gate": "cli.commands.gate:gate",
        "baseline": "commands.baseline_command:baseline",
        "diff": "commands.diff:diff",
        "rehearse": "commands.toolchains.command:rehearse",
    },
    "Share": {
        "publish": "commands.publish.command:publish",
        "verify": "commands.verify.command:verify",
        "evidence": "commands.merge:evidence",
    },
    "Examine": {
        "explain": "commands.explain:explain",
        "repro": "commands.repro.command:repro",
    },
}
#: The function of each command by the name of the command.
BUILT_IN = {
    name: f"exporter.{function}" for group in _GROUPS.values() for name, function in group.items()
}
#: Former commands -> what replaces each one.
_REMOVED = {
    "environments": "docs/devices.md has the tables of environments and devices",
    "expectations": "`exporter gate` prints the line of `expect` for each failure",
    "show": "Netron opens the files; `onnx.printer.to_text(onnx.load(FILE))` is the text of one",
    "ops": "`exporter export CELL` lists each operator that the exporter of a red cell lacks",
}

#: The next step after a command by its exit code. Other commands print a document or their own.
NEXT_STEPS = {
    ("doctor", 0): "prove all models: `exporter export`",
    ("check", 0): "see the cells that would run: `exporter plan`",
    ("list", 0): "see the cells that would run: `exporter plan`",
    ("plan", 0): "prove the models: `exporter export`",
    ("explain", 0): "prove the cell: `exporter export`",
    ("merge", 0): "compare with the accepted results: `exporter gate`",
    ("report", 0): "compare with the accepted results: `exporter gate`",
    ("gate", 0): "write proved files for other tools: `exporter publish DEST`",
    ("baseline", 0): "commit the baseline; in each branch: `exporter gate --against main`",
    ("publish", 0): "prove the folders on another machine: `exporter verify DEST`",
    ("evidence", 0): "compare with the accepted results: `exporter gate`",
    ("rehearse", 0): "upgrade the packages, then: `exporter export`",
    ("gc", 0): "build the removed files that you need: `exporter export`",
}


class _ClosedPipe(Exception):
    """A pipe without a reader, with its BrokenPipeError as the cause."""


class Commands(click.Group):
    """A group that imports only the command that is used."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command.

        Raises:
            _ClosedPipe: click would exit with 1, which means red cells, and without the cause.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedPipe from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, by group; those of other packages last."""
        return list(BUILT_IN | find_plugins(COMMAND_GROUP))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with that name, or None if it does not exist.

        Raises:
            ExporterError: The package of the command cannot be imported, or has no command.
        """
        module, _, function = BUILT_IN.get(cmd_name, "").partition(":")
        if module:
            built_in: click.Command = getattr(importlib.import_module(module), function)
            return built_in
        if (entry_point := find_plugins(COMMAND_GROUP).get(cmd_name)) is None:
            return None
        try:
            command = load_plugin(entry_point)
        except PluginError as error:
            raise ExporterError(ExitCode.ENVIRONMENT, str(error)) from error
        if not isinstance(command, click.Command):
            message = f"{entry_point.value}: expected a command of click, got {command!r}"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names.

        Raises:
            click.UsageError: The command does not exist; the message suggests a similar one.
        """
        name = args[0] if args else "-"
        is_known = name in BUILT_IN or name.startswith("-")
        if not is_known and name not in (names := self.list_commands(ctx)):
            fix = f"; {_REMOVED[name]}" if name in _REMOVED else suggest_nearest(name, names)
            ctx.fail(f"there is no command '{name}'{fix}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group."""
        others = {name: "" for name in self.list_commands(ctx) if name not in BUILT_IN}
        limit = formatter.width - 6 - max(map(len, (*BUILT_IN, *others)))
        for title, names in (*_GROUPS.items(), ("Other packages", others)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self._describe(ctx, name, limit)) for name in names])

    def _describe(self, ctx: click.Context, name: str, limit: int) -> str:
        try:
            command = self.get_command(ctx, name)
        except ExporterError as error:  # a broken package must not hide the other commands
            return str(error)
        return command.get_short_help_str(limit) if command else ""


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
  130  interrupted; an export keeps its finished results
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


#: The exit codes that a shell reports for SIGINT and SIGPIPE.
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE
#: Errors of the machine: full disk, missing permission, too many files. Any other one is a bug.
_MACHINE_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EMFILE,
)


def main(command: click.Command | None = None) -> NoReturn:
    """Run a command with the arguments of the process and exit."""
    # Garbage collection would cost a fifth of a run over 10,000 cells and free almost nothing,
    # because nearly all objects live until the end.
    gc.set_threshold(100_000, 20, 100)
    # SIGTERM and a closed terminal must end the workers in the same way as Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup`
            signal.signal(number, signal.default_int_handler)
    # If the caller closed a stream, the first opened file would get its descriptor.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = run(sys.argv[1:], command)
    gc.freeze()  # skip a collection at exit
    sys.exit(code)


def run(arguments: Sequence[str], command: click.Command | None = None) -> int:
    """Run one command and return its exit code."""
    # The value of `--root`, even if click cannot parse the arguments.
    values = [word.removeprefix("--root=") for word in arguments if word.startswith("--root=")]
    values += [value for name, value in pairwise(arguments) if name == "--root"]
    root = Path(values[-1]) if values else find_root()
    PROJECT_ROOT.set(root)
    try:
        code = (command or exporter).main(
            list(arguments), prog_name="exporter", standalone_mode=False
        )
        step = NEXT_STEPS.get((" ".join(arguments[:1]), int(code or 0)))
        if step and is_terminal() and "--json" not in arguments:
            print_line(f"next: {step}", wraps=True)
        sys.stdout.flush()
        return int(code or 0)
    except ExporterError as error:
        problems = shorten_problems(error.problems)
        for problem in problems:
            print_problem(problem)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from exporter.cli.output.github import report_problems  # 180 ms with pydantic

            report_problems(problems, root)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.MANIFEST
    except (KeyboardInterrupt, click.Abort) as end:
        return _report_interrupt(end.__cause__ or end)
    except (_ClosedPipe, BrokenPipeError, SystemExit) as end:
        # click exits if its help has no reader, or after it completed a command line for a shell.
        if isinstance(end, SystemExit) and "_EXPORTER_COMPLETE" in os.environ:
            raise
        if not _is_output_closed():
            return _report_bug()  # another process closed its pipe
        # Python would print an error at exit when it flushes the closed stdout.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except OSError as error:
        return _report_system_error(error)
    except Exception:  # noqa: BLE001 - becomes exit code 70, with its traceback
        return _report_bug()


def _is_output_closed() -> bool:
    """Return True if the reader of stdout or stderr ended."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)  # the kernel reports a closed end in any case
    return bool(poll.poll(0))


def _report_interrupt(reason: BaseException) -> int:
    """Print why the command ended early. click raises its own exception from the interrupt."""
    if isinstance(reason, StoppedByFailure):
        print_error(f"stopped at {reason}; {RESULTS_NOTE}, tables are not written")
        return ExitCode.RED
    print_error("; ".join(("interrupted", *getattr(reason, "__notes__", ()))))
    return _INTERRUPTED


def _report_system_error(error: OSError) -> int:
    """Print an error of the machine; report any other one as a bug."""
    try:
        Path.cwd()
    except FileNotFoundError:
        print_error("the current folder: does not exist any more; change to another one")
        return ExitCode.ENVIRONMENT
    if error.errno not in _MACHINE_ERRORS:
        return _report_bug()
    path = f"{error.filename}: " if error.filename else ""
    owner = describe_owner(Path(error.filename)) if isinstance(error.filename, str) else ""
    print_error(f"{path}{os.strerror(error.errno)}{owner}")
    return ExitCode.ENVIRONMENT


def _report_bug() -> int:
    print_error(traceback.format_exc())
    print_error("exporter: this is a bug of the tool, not of your model; report the lines above")
    return ExitCode.BUG
