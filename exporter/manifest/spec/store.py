"""Split off; to be described."""

from __future__ import annotations

#: In the place of a folder: nothing is kept.
NO_STORE = "off"


DEFAULT_STORE_SIZE = 10 << 30


DEFAULT_STORE_AGE = 90 * 24 * 3600.0
