"""Settings of all tests: property tests use the same cases on every machine."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

from tests.cpu_seconds import CpuSeconds

# The processes of the tests share the cores, as workers do. Libraries read it at their import.
os.environ["OMP_NUM_THREADS"] = "1"

# A background process of a shell ignores Ctrl-C, which tests send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("quick", settings.get_profile("same"), max_examples=25)
settings.load_profile("same")

# Modules and tests live until the end: examining them takes a tenth of the time.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures tests."""
    purpose = "print the CPU seconds of each test file, children included"
    parser.addoption("--cpu", action="store_true", help=purpose)


def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests if the option asks for it."""
    if config.getoption("--cpu"):
        os.environ["OWN_TEST_SERVERS"] = "1"
        config.pluginmanager.register(CpuSeconds())


def pytest_collection_finish() -> None:
    """Examine only the objects that tests create."""
    gc.freeze()
    gc.enable()
