"""Guards of private functions: tested versions and switches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from exporter.processes.worker_variables import TESTED_TORCH, TORCH_PRIVATE

#: The packages that each group uses or changes.
GROUPS = {
    "capture": ("torch",),
    "decompositions": ("torch",),
    "operators": ("torch",),
    "weights": ("torch",),
    "registry": ("torch", "onnxscript"),
    "type_promotion": ("torch",),
    "node_metadata": ("torch",),
    "composite_operators": ("torch",),
    "rewrite_rules": ("onnxscript",),
}
#: The private modules that an export imports; the fork server imports them once for all workers.
PRIVATE_MODULES = (
    "torch.export._trace",
    "torch._dynamo",
    # Imported during a capture or a decomposition.
    "torch._inductor.compiler_bisector",
    "torch._inductor.sizevars",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._torchlib.ops",
    "torch.onnx._internal.torchscript_exporter.utils",
)
#: The minor versions that were tested, by package.
_TESTED: dict[str, tuple[tuple[int, int], ...]] = {
    "torch": TESTED_TORCH,
    "onnxscript": ((0, 7),),
}


def read_switch(text: str | None) -> frozenset[str]:
    """Return the groups that the value of the environment variable leaves on.

    Raises:
        ImportError: If a group does not exist. The worker then ends with a clear message.
    """
    if text is None:
        return frozenset(GROUPS)
    names = frozenset(text.replace(" ", "").split(",")) - {"none", ""}
    if unknown := sorted(names - set(GROUPS)):
        groups = ", ".join(GROUPS)
        message = f"{TORCH_PRIVATE}: no group is named '{unknown[0]}'; use none or some of {groups}"
        raise ImportError(message)
    return names


_ENABLED = read_switch(os.environ.get(TORCH_PRIVATE))


def is_enabled(group: str) -> bool:
    """Return True if a group is on and the versions of its packages were tested."""
    return group in _ENABLED and all(_is_tested(package) for package in GROUPS[group])


def is_known_torch() -> bool:
    """Return True if the private modules of the installed torch were tested."""
    return _is_tested("torch")


def list_known_versions() -> tuple[str, ...]:
    """Return the tested minor versions of torch, such as `2.13`."""
    return tuple(f"{major}.{minor}" for major, minor in _TESTED["torch"])


def _is_tested(package: str) -> bool:
    installed = torch if package == "torch" else import_module(package)
    major, minor = installed.__version__.split(".")[:2]
    return (int(major), int(minor)) in _TESTED[package]


@contextmanager
def replace_attribute(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of a class or module while the context is active."""
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
