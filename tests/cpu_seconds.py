"""`pytest --cpu`: the CPU seconds of each test file and of the tests that need most.

They include those of processes that a test started, and of servers that the tests share.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Tests with this many CPU seconds are listed.
LISTED = 2.0
_TICK = os.sysconf("SC_CLK_TCK")


def measure_children() -> float:
    """Return the CPU seconds of all processes that this one started, ended or not."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = sum(map(int, fields[11:15])) / _TICK  # its own, and of children that ended
    known, total = {os.getpid()}, ended.ru_utime + ended.ru_stime
    while found := {pid for pid, parent in parents.items() if parent in known} - known:
        total += sum(seconds[pid] for pid in found)
        known |= found
    return total


class CpuSeconds:
    """A plugin of pytest that measures tests in each process and prints the sums in the first."""

    def __init__(self) -> None:
        self._own = self._children = 0.0
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        # The time since the last report: imports and collection count for the first test.
        report = yield
        own, children = time.process_time(), measure_children()
        # A process that was killed with its parent is in no sum.
        report.cpu = own - self._own + max(children - self._children, 0.0)
        self._own, self._children = time.process_time(), children
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.cpu

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: Counter[str] = Counter()
        for test, seconds in self._tests.items():
            files[test.partition("::")[0]] += seconds
        terminalreporter.section(f"{files.total():.0f} CPU seconds")
        counts = Counter(test.partition("::")[0] for test in self._tests)
        for file, seconds in files.most_common():
            terminalreporter.line(f"{seconds:7.1f} s in {counts[file]:4} tests of {file}")
        for test, seconds in self._tests.most_common():
            if seconds >= LISTED:
                terminalreporter.line(f"{seconds:7.1f} s {test}")
