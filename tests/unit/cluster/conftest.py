"""Open files that each test closes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import BinaryIO, cast

import pytest


@pytest.fixture
def open_file() -> Iterator[Callable[[], BinaryIO]]:
    """Return a function that opens a temporary file."""
    with ExitStack() as stack:
        yield lambda: cast("BinaryIO", stack.enter_context(tempfile.TemporaryFile()))
