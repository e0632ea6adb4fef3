"""Sign entries of a remote store, so that nobody without the key can add one.

The entry contains the hashes of its files, so its signature covers them. The same key signs and
verifies, because Python has no asymmetric signatures.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

#: Characters of a key: 128 bits in hexadecimal digits.
MIN_KEY_LENGTH = 32
_UNSIGNED = b"unsigned"
_SCHEME = b"hmac-sha256 "
#: Prevents that a signature of another program with the same key is valid here.
_PURPOSE = b"onnx-exporter-matrix store entry\n"


class UntrustedEntry(Exception):
    """The signature of an entry is missing or wrong; the text describes it."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that all trusted writers and readers have."""

    secret: bytes = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of these bytes."""
        digest = hmac.new(self.secret, _PURPOSE + data, hashlib.sha256)
        return _SCHEME + digest.hexdigest().encode()


def wrap(data: bytes, key: SigningKey | None) -> bytes:
    """Return an entry with its signature in the first line."""
    return (key.sign(data) if key else _UNSIGNED) + b"\n" + data


def unwrap(data: bytes, key: SigningKey | None) -> bytes:
    """Return the entry without its first line.

    Raises:
        UntrustedEntry: if there is a key and the entry is not signed with it.
    """
    signature, _, entry = data.partition(b"\n")
    if key and signature == _UNSIGNED:
        raise UntrustedEntry("not signed")
    if key and not hmac.compare_digest(signature, key.sign(entry)):
        raise UntrustedEntry("signed with another key or changed")
    return entry
