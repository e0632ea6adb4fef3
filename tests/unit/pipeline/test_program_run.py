"""A program runs to its end, and its output is passed on."""

from __future__ import annotations

import os
import sys
import time

import pytest

from exporter.pipeline.toolchain_export import run_program


def test_both_streams_are_passed_on_line_by_line() -> None:
    code = "import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)"
    lines: list[str] = []
    assert run_program([sys.executable, "-uc", code], os.environ, lines.append) == 3
    assert lines == ["a", "b"]


def test_a_service_of_a_program_is_not_waited_for() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '20']); print('a\\nb', end='')"
    lines: list[str] = []
    started = time.monotonic()
    assert run_program([sys.executable, "-c", code], os.environ, lines.append) == 0
    assert lines == ["a", "b"]
    assert time.monotonic() - started < 15


def test_an_interrupted_caller_ends_the_program() -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "print(os.getpid())\n"
        "time.sleep(60)\n"
    )
    pids: list[int] = []

    def interrupt(line: str) -> None:
        if line.isdigit():
            pids.append(int(line))
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-uc", code], os.environ, interrupt)
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
