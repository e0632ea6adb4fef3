"""Run a command and convert every error to a message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
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
from exporter.cli.registry import NEXT_STEPS, exporter
from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.core.files import describe_owner

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


def main() -> NoReturn:
    """Run the command of the process and exit."""
    # Garbage collection would cost a fifth of a run over 10,000 cells and free almost nothing,
    # because nearly all objects live until the end.
    gc.set_threshold(100_000, 20, 100)
    # SIGTERM must end the workers in the same way as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # If the caller closed a stream, the first opened file would get its descriptor.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = run(sys.argv[1:])
    gc.freeze()  # skip a collection at exit
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    root = _find_root(arguments)
    PROJECT_ROOT.set(root)
    try:
        code = exporter.main(list(arguments), prog_name="exporter", standalone_mode=False)
        step = NEXT_STEPS.get((" ".join(arguments[:1]), int(code or 0)))
        if step and is_terminal() and "--json" not in arguments:
            print_line(f"next: {step}")
        sys.stdout.flush()
        return int(code or 0)
    except ExporterError as error:
        for problem in error.problems:
            print_problem(problem)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from exporter.cli.output.github import report_problems

            report_problems(error.problems, root)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.MANIFEST
    except (KeyboardInterrupt, click.Abort) as end:
        return _report_interrupt(end.__cause__ or end)
    except (BrokenPipeError, SystemExit) as end:
        # click exits with 1 after a BrokenPipeError, which would mean red cells, and otherwise only
        # after it completed a command line for a shell.
        if isinstance(end, SystemExit) and "_EXPORTER_COMPLETE" in os.environ:
            raise
        # Python would print an error at exit when it flushes the closed stdout.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except OSError as error:
        return _report_system_error(error)
    except Exception:  # noqa: BLE001 - becomes exit code 70, with its traceback
        return _report_bug()


def _find_root(arguments: Sequence[str]) -> Path:
    """Return the value of `--root`, even if click cannot parse the arguments."""
    values = [word.removeprefix("--root=") for word in arguments if word.startswith("--root=")]
    values += [value for name, value in pairwise(arguments) if name == "--root"]
    return Path(values[-1]) if values else Path()


def _report_interrupt(reason: BaseException) -> int:
    """Print why the command ended early. click raises its own exception from the interrupt."""
    if isinstance(reason, StoppedByFailure):
        print_error(f"stopped at {reason}; finished results are kept, tables are not written")
        return ExitCode.RED
    print_error("interrupted; finished results are kept")
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
