"""Only the command line prints, exits and reads the environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "exporter"
INNER = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if not path.is_relative_to(PACKAGE / "cli")
    and path != PACKAGE / "__main__.py"
    and not path.stem.endswith("command")
)
#: A worker is its own program: its output is its log, and it ends itself.
WORKER = {"sys.stdout", "sys.stderr"}
ENTRY = WORKER | {"sys.argv", "sys.exit", "os._exit"}
FORBIDDEN = {
    "print",
    "exit",
    "quit",
    "sys.exit",
    "sys.stdout",
    "sys.stderr",
    "sys.argv",
    "os._exit",
    "os.environ",
    "os.getenv",
    "os.environb",
    "os.putenv",
    "SystemExit",
}


def border_crossings(source: str) -> Iterator[str]:
    """Yield every use of a forbidden name in `source`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in FORBIDDEN:
            yield node.id
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "input":
            yield "input"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in FORBIDDEN:
                yield name
        elif isinstance(node, ast.ImportFrom):
            yield from (
                name
                for name in (f"{node.module}.{alias.name}" for alias in node.names)
                if name in FORBIDDEN
            )


#: Handlers that raise nothing. An exception from a signal inside of native code ends the process.
HARMLESS = {"signal.SIG_DFL", "signal.SIG_IGN", "lambda *_: None"}


def risky_handlers(source: str) -> Iterator[str]:
    """Yield every timer, and every call that lets a signal run other code."""
    for node in ast.walk(ast.parse(source)):
        is_risky = False
        if isinstance(node, ast.Attribute):
            is_risky = node.attr in {"setitimer", "alarm"}
        elif isinstance(node, ast.ImportFrom):
            is_risky = node.module == "signal"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
            is_risky = ast.unparse(node.args[1]) not in HARMLESS
        if is_risky:
            yield ast.unparse(node)


def test_no_signal_raises_inside_of_other_code() -> None:
    found = {
        (path.name, text)
        for path in PACKAGE.rglob("*.py")
        for text in risky_handlers(path.read_text(encoding="utf-8"))
    }
    assert found == {
        # The command line, which runs no native code of models, and a handler that is put back.
        ("entry_point.py", "signal.signal(number, signal.default_int_handler)"),
        ("fork_call.py", "signal.signal(signal.SIGCHLD, handler)"),
    }


def list_allowed(path: Path) -> set[str]:
    """Return the forbidden names that a module may use, with the reason in a comment."""
    allowed: set[str] = set()
    if path == PACKAGE / "processes" / "child_call.py":  # the program of a child process
        allowed = {"sys.argv", "sys.stdout", "sys.stderr", "os._exit", "os.environ"}
    if path == PACKAGE / "processes" / "lifetime.py":  # ends a process without a parent
        allowed = {"os._exit"}
    # The switches of the tests, and of private functions.
    if path in (PACKAGE / "core" / "system.py", PACKAGE / "cache" / "states.py"):
        allowed = {"os.environ"}
    # The program of a host; the variables of a device in addition to those of the worker; those
    # that select GPUs, for a message; the output of a command for GitHub; two that the tests of
    # users call.
    if path.name in {
        "host_run.py",
        "runtime_process.py",
        "runtime_registry.py",
        "github.py",
        "testing.py",
        "pytest_plugin.py",
    }:
        allowed = {"os.environ"}
    if path == PACKAGE / "cli" / "watch.py":  # the loop of `export --watch`
        allowed = {"os.environ", "sys.stdout"}
    is_step = path.parent.name == "passes" or path.name == "access_tracer.py"
    if path.is_relative_to(PACKAGE / "worker") or is_step:
        allowed = ENTRY if path.name == "__main__.py" else WORKER
        # The folder for temporary files: it is written and not read.
        if path == PACKAGE / "worker" / "__main__.py":
            allowed = ENTRY | {"os.environ"}
        # Their forks end as programs do.
        if path.name in {"fork_server.py", "access_tracer.py", "fork_call.py"}:
            allowed = ENTRY | {"SystemExit"}
        # The switch of private functions, and the record of the variables that a model reads.
        if path.name in {"guards.py", "opened_files.py"}:
            allowed = WORKER | {"os.environ", "os.environb"}
    elif path == PACKAGE / "runtimes" / "drivers" / "server.py":  # the program of an environment
        allowed = WORKER
    elif "child" in (path.stem, path.parent.name) and path.is_relative_to(PACKAGE / "commands"):
        # These are programs, like a worker. The observer describes the user's command line.
        allowed = ENTRY if path.name == "observer.py" else WORKER
    return allowed


def test_inner_modules_neither_print_nor_exit_nor_read_the_environment() -> None:
    assert not {
        str(path.relative_to(PACKAGE)): names
        for path in INNER
        if (names := set(border_crossings(path.read_text("utf-8"))) - list_allowed(path))
    }


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "input('x')",
        "import os\nos.environ['A']",
        "from os import environ",
        "import sys\nsys.exit(1)",
        "raise SystemExit",
    ],
)
def test_the_search_finds_each_way(source: str) -> None:
    assert list(border_crossings(source))


_QUESTIONS = {"sys.platform", "os.name", "platform.system", "platform.platform", "os.uname"}
_PARTS = re.compile(r"(has|get)attr\((os|select|signal|socket|resource), '")


def platform_questions(source: str) -> Iterator[str]:
    """Yield each question for the operating system."""
    for node in ast.walk(ast.parse(source)):
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Call) else ""
        if text in _QUESTIONS or _PARTS.match(text):
            yield text


def test_one_module_asks_for_the_operating_system() -> None:
    """The drivers run in environments without this package."""
    asking = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if [*platform_questions(path.read_text("utf-8"))] and path.parent.name != "drivers"
    }
    assert asking == {"core/system.py"}
    assert [*platform_questions("import os\nif hasattr(os, 'fork'): sys.platform")]
