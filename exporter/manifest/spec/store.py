"""Defaults of the settings of the store."""

from __future__ import annotations

#: The value of `store` that switches the store off.
NO_STORE = "off"
#: Bytes: 10 GiB.
DEFAULT_STORE_SIZE = 10 << 30
#: Seconds: 90 days.
DEFAULT_STORE_AGE = 90 * 24 * 3600.0
