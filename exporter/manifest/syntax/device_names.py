"""The names of devices in toolchains: `cpu@onnxscript0.6`."""

from __future__ import annotations

from fnmatch import fnmatchcase

#: Between the device and the toolchain.
SEPARATOR = "@"
#: The name of the project's own packages in conditions. No toolchain has this name.
CURRENT_TOOLCHAIN = "current"


def split_device(name: str) -> tuple[str, str]:
    """Return the device and the toolchain, which is empty for the project's own packages."""
    device, _, toolchain = name.partition(SEPARATOR)
    return device, toolchain


def join_device(device: str, toolchain: str) -> str:
    """Return the name of a device in a toolchain."""
    return f"{device}{SEPARATOR}{toolchain}"


def matches_device(name: str, pattern: str) -> bool:
    """Return True if a pattern of the manifest matches a device.

    A pattern without `@` matches the device in all toolchains.
    """
    return fnmatchcase(name if SEPARATOR in pattern else split_device(name)[0], pattern)


def matches_toolchain(name: str, pattern: str) -> bool:
    """Return True if a pattern matches the toolchain of a device."""
    return fnmatchcase(split_device(name)[1] or CURRENT_TOOLCHAIN, pattern)
