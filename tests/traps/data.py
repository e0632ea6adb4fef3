"""Traps: external weights that are missing, incomplete or outside the directory."""

from __future__ import annotations

from tests.traps import tampering as tamper
from tests.traps.sound import OFF, OUTSIDE
from tests.traps.trap import SOUND, Tamper, Trap, Verdict, structure


def _data(name: str, story: str, how: Tamper, verdict: Verdict) -> Trap:
    return Trap(f"data {name}", story, OUTSIDE, verdict, tamper=how)


DATA = (
    _data("untouched", "external weights", tamper.edited(lambda _: None), SOUND),
    _data(
        "missing",
        "no file of that name",
        tamper.data_missing,
        structure("wellformed", "is missing"),
    ),
    _data(
        "truncated",
        "four bytes short: the checker of ONNX takes it",
        tamper.data_truncated,
        structure("wellformed", "which has"),
    ),
    _data(
        "above",
        "`../weights`: it would not travel",
        tamper.data_above,
        structure("wellformed", "is not inside the file's folder"),
    ),
    _data(
        "by absolute path",
        "an absolute path is invalid on other machines and reveals this one",
        tamper.data_absolute,
        structure("wellformed", "is not inside the file's folder"),
    ),
    _data(
        "behind a link",
        "a symbolic link in its place",
        tamper.data_linked,
        structure("wellformed", "is a link"),
    ),
    _data(
        "under two names",
        "a hard link: a change elsewhere would change it",
        tamper.data_hard_linked,
        structure("wellformed", "more than one hard link"),
    ),
    _data(
        "at another offset",
        "the first weight starts four bytes late",
        tamper.entries("offset", lambda offset: offset + 4),
        structure("wellformed", "which has"),
    ),
    _data(
        "of another length",
        "a row short",
        tamper.entries("length", lambda length: length - 80),
        structure("wellformed", "its shape and type need"),
    ),
    _data(
        "at a negative offset",
        "before the file begins",
        tamper.entries("offset", lambda offset: -4),
        structure("wellformed", "has offset -4"),
    ),
    _data(
        "swapped",
        "two weights of one size read each other's bytes",
        tamper.edited(tamper.swap_offsets),
        OFF,
    ),
    _data("with one bit flipped", "of one exponent", tamper.data_flipped, OFF),
)
