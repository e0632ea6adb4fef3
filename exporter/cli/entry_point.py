"""From arguments to an exit code: every error becomes a message, and only a bug a traceback.

In: the arguments of the process. Out: the exit code.
"""

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

from exporter.cli.output.terminal import ROOT, print_error
from exporter.cli.registry import exporter
from exporter.core.errors import ExitCode, ExporterError, Problem

#: What a shell reports for SIGINT and SIGPIPE.
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE
#: What the machine lacks or forbids; any other OSError is a bug of ours.
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE)


def main() -> NoReturn:
    """The console script."""
    # A command lives for seconds and drops little: looking for what refers to itself costs a fifth
    # of a run over 10,000 cells, where nearly all that there is stays to the end.
    gc.set_threshold(100_000, 20, 100)
    # Killed from outside, it must end its workers as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = run(sys.argv[1:])
    gc.freeze()  # nothing is looked for in what goes with the process
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command; the answer is its exit code."""
    ROOT.set(_root(arguments))
    try:
        answer = exporter.main(list(arguments), prog_name="exporter", standalone_mode=False)
        sys.stdout.flush()
        return int(answer or 0)
    except ExporterError as error:
        for problem in error.problems:
            print_error(str(problem))
        _annotate(error.problems, _root(arguments))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.MANIFEST
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted: what was done before is kept")
        return _INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return _PIPE_CLOSED
    except OSError as error:
        if error.errno not in _MACHINE:
            return _bug()
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{os.strerror(error.errno)}")
        return ExitCode.ENVIRONMENT
    except Exception:  # noqa: BLE001 - becomes exit code 70, with its traceback
        return _bug()


def _annotate(problems: Sequence[Problem], root: Path) -> None:
    """In a GitHub job, shows problems that have a place in a file there."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from exporter.cli.output.github import Annotation, annotate

        # Locations are relative to the project's root.
        places = (problem for problem in problems if problem.location)
        annotate(
            (
                Annotation(
                    level="error",
                    title=problem.key or "exporter",
                    message=problem.message,
                    location=problem.location,
                )
                for problem in places
            ),
            root,
        )


def _root(arguments: Sequence[str]) -> Path:
    """What `--root` names: the command itself may have failed before it knew."""
    words = [word.removeprefix("--root=") for word in arguments if word.startswith("--root=")]
    words += [value for name, value in pairwise(arguments) if name == "--root"]
    return Path(words[-1]) if words else Path()


def _bug() -> int:
    print_error(traceback.format_exc())
    print_error(
        "this is a bug of exporter, not of your model: please report it with the lines above"
    )
    return ExitCode.BUG


def _forget_stdout() -> None:
    """Keeps Python from complaining, at exit, of what it could not flush."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
