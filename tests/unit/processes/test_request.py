"""A child process receives a request and returns a response, or the reason why it has none."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from exporter.processes.request import ChildResult, describe_exit, send_request

HEAD = "import os, subprocess, sys, time\nfrom exporter.processes.request import serve_request\n"


def run_program(folder: Path, program: str, **options: object) -> ChildResult:
    """Run the program as a module that receives the request `content`."""
    (folder / "stub_child.py").write_text(HEAD + program, encoding="utf-8")
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{folder}:{root}"}
    return send_request("stub_child", "content", environment, **options)  # type: ignore[arg-type]


def test_the_response_is_returned(tmp_path: Path) -> None:
    result = run_program(tmp_path, "serve_request(lambda data: data.decode() + ' received')")
    assert (result.code, result.response, result.log) == (0, b"content received", "")


def test_a_failure_has_no_response_and_the_end_of_the_log(tmp_path: Path) -> None:
    program = "serve_request(lambda data: sys.exit('x' * 5000 + '\\nno such library'))"
    result = run_program(tmp_path, program)
    assert (result.code, result.response) == (1, None)
    assert len(result.log) <= 2000
    assert result.describe_end() == "exited with code 1: no such library"


def test_a_crash_is_described_by_its_signal(tmp_path: Path) -> None:
    result = run_program(tmp_path, "os.abort()")
    assert result.code == -signal.SIGABRT
    assert result.describe_end() == "was terminated by SIGABRT"


def test_a_timeout_kills_the_process_and_its_children(tmp_path: Path) -> None:
    program = (
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    result = run_program(tmp_path, program, timeout=1.5)
    assert (result.code, result.response) == (None, None)
    assert result.describe_end() == "did not finish within 1.5 s"
    pid = (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        shown = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, check=False)
        if shown.stdout.strip()[:1] in (b"", b"Z"):
            return
    pytest.fail("the child of the process still runs")


def test_lines_of_stdout_are_passed_on(tmp_path: Path) -> None:
    lines: list[str] = []
    program = "print(1)\nprint(2)\nserve_request(lambda data: 'done')"
    result = run_program(tmp_path, program, on_line=lines.append)
    assert (lines, result.response) == (["1\n", "2\n"], b"done")


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


def test_each_line_extends_the_time_and_silence_ends_it(tmp_path: Path) -> None:
    lines: list[str] = []
    program = (
        "for number in range(4):\n"
        "    print(number, flush=True)\n"
        "    time.sleep(1)\n"
        "serve_request(lambda data: 'done')\n"
        "time.sleep(0 if not os.path.exists('{flag}') else 60)"
    ).replace("{flag}", str(tmp_path / "silent"))
    result = run_program(tmp_path, program, timeout=3.0, on_line=lines.append)
    assert (result.code, result.response) == (0, b"done")
    assert lines == ["0\n", "1\n", "2\n", "3\n"]
    (tmp_path / "silent").touch()
    started = time.monotonic()
    result = run_program(tmp_path, program, timeout=3.0, on_line=lines.append)
    assert result.code is None
    assert time.monotonic() - started < 30
