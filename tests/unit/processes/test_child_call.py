"""A function in a child process returns its value, raises its error, or ends without both."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Tolerance
from exporter.processes.child_call import MEMORY, ChildFailure, call_in_child, describe_exit

ROOT = Path(__file__).parents[3]
HEAD = """
from __future__ import annotations
import os, subprocess, sys, tempfile, time
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Tolerance
"""


def call(folder: Path, function: str, returns: Any, /, **arguments: object) -> Any:
    """Call the only function of a module."""
    return call_with(folder, function, returns, arguments, seconds=60.0)


def call_with(
    folder: Path, function: str, returns: Any, arguments: dict[str, object], **options: Any
) -> Any:
    (folder / "stub_child.py").write_text(HEAD + function, encoding="utf-8")
    name = function.partition("def ")[2].partition("(")[0]
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", **options.pop("variables", {})}
    return call_in_child(f"stub_child:{name}", arguments, returns, environment, **options)


def test_arguments_and_result_keep_their_types(tmp_path: Path) -> None:
    function = (
        "def double(limit: Tolerance, sizes: tuple[int, ...]) -> Tolerance:\n"
        "    assert sizes == (1, 2)\n"
        "    return limit.model_copy(update={'rtol': 2 * limit.rtol})\n"
    )
    limit = Tolerance(atol=1e-9, rtol=0.25)
    doubled = call(tmp_path, function, Tolerance, limit=limit, sizes=(1, 2))
    assert doubled == Tolerance(atol=1e-9, rtol=0.5)


def test_numbers_without_a_json_form_are_kept(tmp_path: Path) -> None:
    function = "def negate(value: float) -> float:\n    return -value\n"
    assert call(tmp_path, function, float, value=math.inf) == -math.inf


def test_a_tuple_and_a_text_are_results(tmp_path: Path) -> None:
    function = "def repeat(text: str) -> tuple[str, ...]:\n    return (text, text)\n"
    assert call(tmp_path, function, tuple[str, ...], text="é\n") == ("é\n", "é\n")


def test_an_error_of_the_function_is_raised_again(tmp_path: Path) -> None:
    function = "def fail() -> None:\n    raise ExporterError(ExitCode.UNREADABLE, 'x: no file')\n"
    with pytest.raises(ExporterError, match=r"^x: no file$") as caught:
        call(tmp_path, function, type(None))
    assert caught.value.exit_code is ExitCode.UNREADABLE


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("os.abort()", -6, "was terminated by SIGABRT"),
        ("1 / 0", 1, "exited with code 1: ZeroDivisionError: division by zero"),
        ("os._exit(0)", 0, "exited with code 0"),
        ("sys.exit(4)", 4, "exited with code 4"),
    ],
)
def test_an_end_without_a_result_is_a_failure(
    tmp_path: Path, body: str, code: int, message: str
) -> None:
    with pytest.raises(ChildFailure) as caught:
        call(tmp_path, f"def end() -> None:\n    {body}\n", type(None))
    assert (caught.value.code, str(caught.value)) == (code, message)


def test_an_error_when_python_ends_is_no_failure(tmp_path: Path) -> None:
    function = (
        "def crash_later() -> int:\n    import atexit; atexit.register(os.abort)\n    return 3\n"
    )
    assert call(tmp_path, function, int) == 3


@pytest.mark.parametrize(
    ("code", "phrase"),
    [
        (0, "exited with code 0"),
        (-signal.SIGSEGV, "was terminated by SIGSEGV"),
        (-signal.SIGKILL, "was killed (SIGKILL, most often for its memory)"),
        (-250, "was terminated by signal 250"),
    ],
)
def test_exit_codes_are_described(code: int, phrase: str) -> None:
    assert describe_exit(code) == phrase


def test_the_end_of_a_long_log_is_the_message(tmp_path: Path) -> None:
    function = "def end() -> None:\n    sys.exit('x' * 5000 + '\\nno such library')\n"
    with pytest.raises(ChildFailure, match=r"^exited with code 1: no such library$"):
        call(tmp_path, function, type(None))


WAIT = (
    "def wait(path: str) -> None:\n"
    "    child = subprocess.Popen(['sleep', '60'])\n"
    "    open(f'{path}.part', 'w').write(f'{child.pid} {os.getpid()} {tempfile.mkdtemp()}')\n"
    "    os.rename(f'{path}.part', path)\n"
    "    time.sleep(60)\n"
)


def is_running(pid: str) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, check=False)
    return shown.stdout.strip()[:1] not in (b"", b"Z")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_limit_of_memory_ends_the_function(tmp_path: Path) -> None:
    function = "def fill(count: int) -> int:\n    return len(bytearray(count))\n"
    options: dict[str, Any] = {"variables": {MEMORY: str(1 << 30)}}
    assert call_with(tmp_path, function, int, {"count": 1 << 20}, **options) == 1 << 20
    with pytest.raises(ChildFailure, match="MemoryError"):
        call_with(tmp_path, function, int, {"count": 2 << 30}, **options)


def test_the_process_ends_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "stub_child.py").write_text(HEAD + WAIT, encoding="utf-8")
    program = (
        "import os, sys\n"
        "from exporter.processes.child_call import call_in_child\n"
        "call_in_child('stub_child:wait', {'path': sys.argv[1]}, type(None), os.environ)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    path = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", program, str(path)], env=environment)
    wait_until(path.exists)
    parent.kill()
    parent.wait()
    service, pid, _ = path.read_text().split()
    wait_until(lambda: not is_running(pid))
    os.kill(int(service), signal.SIGKILL)


def test_a_timeout_kills_the_process_and_its_children(tmp_path: Path) -> None:
    arguments: dict[str, object] = {"path": str(tmp_path / "pid")}
    with pytest.raises(ChildFailure, match=r"^did not finish within 1.5 s$") as caught:
        call_with(tmp_path, WAIT, type(None), arguments, seconds=1.5)
    assert caught.value.code is None
    child, _, temporary = (tmp_path / "pid").read_text().split()
    assert not Path(temporary).exists()
    wait_until(lambda: not is_running(child))


def test_each_line_extends_the_time_and_silence_ends_it(tmp_path: Path) -> None:
    lines: list[str] = []
    function = (
        "def count(lines: int, rest: float) -> None:\n"
        "    for number in range(lines):\n"
        "        print(number, flush=True)\n"
        "        time.sleep(0.6)\n"
        "    time.sleep(rest)\n"
    )
    options: dict[str, Any] = {"seconds": 1.5, "on_line": lines.append}
    call_with(tmp_path, function, type(None), {"lines": 3, "rest": 0.0}, **options)
    assert lines == ["0\n", "1\n", "2\n"]
    with pytest.raises(ChildFailure, match="did not finish"):
        call_with(tmp_path, function, type(None), {"lines": 1, "rest": 60.0}, **options)
