"""What a record is valid for, as digests of named parts.

In: a `ModelSpec`, the project and the installed tools. Out: a table part -> digest, which goes
into each record; where one differs later, the record is of another time and `cache.py` says so.

The files that the model was made from are not known before it ran: the worker lists them, with
their hashes, in the record itself.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exporter.manifest import Manifest, ModelSpec

#: Distributions whose version can change a file or a verdict.
DISTRIBUTIONS = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
#: What describes or judges a cell and does not change what was found.
_NOT_PROVED = frozenset(
    {"line", "manifest", "description", "owner", "tags", "expect", "skip", "timeout"}
    # Each cell is one opset on one device: that there are others changes nothing for it.
    | {"opsets", "devices"}
)


def fingerprint(manifest: Manifest, spec: ModelSpec) -> dict[str, str]:
    """Digests of the entry, the devices that it names, and the tools."""
    devices = [manifest.project.device(name).to_json() for name in spec.devices]
    return {
        "entry": _digest(spec.model_dump_json(exclude=set(_NOT_PROVED))),
        "devices": _digest("".join(devices)),
        "tools": _digest(repr(sorted(tool_versions().items())) + _own_code()),
    }


@cache
def tool_versions() -> dict[str, str]:
    """Version of every tool that has a say, without importing one; `missing` where it is."""
    tools = {"python": platform.python_version(), "platform": _platform()}
    for name in ("exporter", *DISTRIBUTIONS):
        tools[name] = _version("onnx-exporter-matrix" if name == "exporter" else name)
    return tools


def file_digest(path: Path) -> str:
    """The sha256 of a file, in hex; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "missing"


def _platform() -> str:
    return f"{platform.system()} {platform.machine()}".lower()


@cache
def _own_code() -> str:
    """Our own modules: in a checkout their version does not change with each edit."""
    package = Path(__file__).parent
    files = sorted(package.rglob("*.py"))
    return _digest("".join(f"{path.relative_to(package)}:{file_digest(path)};" for path in files))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
