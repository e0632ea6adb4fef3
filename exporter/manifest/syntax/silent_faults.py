"""Releases of packages that write wrong files without an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.manifest.syntax.values import is_in_range


@dataclass(frozen=True, slots=True)
class SilentFault:
    """A fault that only a comparison of outputs shows; a trap has its model."""

    package: str
    releases: str
    """The range with the fault, such as `>=0.6,<0.7.1`."""
    effect: str
    repaired: str
    """The first release without it."""


#: A release below the oldest supported one is here, too, if it is often installed.
SILENT_FAULTS = (
    SilentFault("onnxscript", "<0.7.1", "writes wrong files of `nn.GRU` by dynamo", "0.7.1"),
)


def list_silent_faults(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each known fault of these releases, with the fix."""
    for fault in SILENT_FAULTS:
        installed = versions.get(fault.package, "")
        if installed and is_in_range(installed, fault.releases):
            text = f"{fault.package} {installed} {fault.effect} without an error"
            yield f"{text}; install '{fault.package}>={fault.repaired}'"
