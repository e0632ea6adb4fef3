"""The settings of the store: defaults, and the schemes of remote stores."""

from __future__ import annotations

#: The value of `store` that switches the store off.
NO_STORE = "off"
#: Bytes: 10 GiB.
DEFAULT_STORE_SIZE = 10 << 30
#: Seconds: 90 days.
DEFAULT_STORE_AGE = 90 * 24 * 3600.0
#: Seconds that a run waits for a remote store: a few hundred cells at 10 MB/s.
DEFAULT_STORE_TIMEOUT = 120.0
#: The scheme of a URL -> the modules that read it. Python can read `http` itself.
REMOTE_SCHEMES = {
    "s3": ("fsspec", "s3fs"),
    "gs": ("fsspec", "gcsfs"),
    "az": ("fsspec", "adlfs"),
    "file": ("fsspec",),
    "https": (),
    "http": (),
}
_SEPARATOR = "://"


def is_remote(store: str) -> bool:
    """Return True if the value of `store` is a URL."""
    return _SEPARATOR in store


def split_url(store: str) -> tuple[str, str]:
    """Return the scheme and the rest of a URL."""
    scheme, _, rest = store.partition(_SEPARATOR)
    return scheme, rest
