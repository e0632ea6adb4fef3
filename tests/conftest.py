"""What all tests share: property tests that take the same cases on every machine."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell lets what it starts in the background ignore Ctrl-C; tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile("same")
