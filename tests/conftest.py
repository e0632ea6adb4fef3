"""Settings of all tests: property tests use the same cases on every machine."""

from __future__ import annotations

import signal

from hypothesis import settings

# A background process of a shell ignores Ctrl-C, which tests send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.load_profile("same")
