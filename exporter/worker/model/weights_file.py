"""The file of `weights` loaded into the model, strictly.

In: a model and the path of a file. Out: the model with these weights. Nothing of the file is run:
safetensors has no code, and of a pickle only tensors are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from exporter.cache.fingerprint import file_digest
from exporter.core.text_format import join_names
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure, format_message, wrap_errors

#: What torch says of a pickle that wants to call something.
_REFUSED = re.compile(r"(?:Unsupported (?:global: GLOBAL|class)|GLOBAL) (\S+)")


def require_hash(spec: ModelSpec, folder: Path) -> None:
    """Holds the file against the hash of the manifest, before anything of the model runs.

    Raises:
        Failure: of stage `source`.
    """
    if not spec.weights_sha256:
        return
    found = file_digest(folder / spec.weights)
    if found != spec.weights_sha256:
        raise Failure(
            Stage.SOURCE,
            f"{spec.weights} has the sha256 {found or '(it cannot be read)'}, "
            f"the manifest says {spec.weights_sha256}",
        )


def load_weights(model: object, spec: ModelSpec, folder: Path) -> None:
    """Loads the file of `spec.weights` into the model.

    Args:
        model: Changed in place.
        spec: The contract.
        folder: That the path is relative to.

    Raises:
        Failure: of stage `source`, where the file cannot be read, holds anything but tensors by
            name, or does not fit the model; missing and unexpected names are named.
    """
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise Failure(Stage.SOURCE, f"{spec.source} is a {kind}, which takes no weights")
    state = _read(folder / spec.weights, spec.weights)
    with wrap_errors(Stage.SOURCE):
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            _, _, reasons = str(error).partition(":")
            text = f"{spec.weights} does not fit {spec.source}: {reasons.strip() or error}"
            raise Failure(Stage.SOURCE, format_message(text)) from error


def _read(path: Path, name: str) -> Mapping[str, Any]:
    try:
        found = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    except Exception as error:
        raise Failure(Stage.SOURCE, f"{name} {_why(error)}") from error
    if isinstance(found, Mapping) and all(isinstance(key, str) for key in found):
        others = [key for key, value in found.items() if not _is_state(key, value)]
        if found and not others:
            return found
        inner = [key for key, value in found.items() if isinstance(value, Mapping)]
        hint = f"; its '{inner[0]}' may be what you want: save that alone" if inner else ""
        listed = join_names(others)
        what = f"holds more than tensors: {listed}{hint}" if others else "holds no tensors"
    else:
        what = f"holds a {type(found).__name__}, expected tensors by name"
    raise Failure(Stage.SOURCE, format_message(f"{name} {what}"))


def _is_state(key: str, value: object) -> bool:
    # Modules may keep what they like under this name, and get it back.
    return isinstance(value, torch.Tensor) or key.endswith("_extra_state")


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors import safe_open

    # Mapped, not read: what the model copies needs no second place in memory.
    with safe_open(path, framework="pt", device="cpu") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict


def _read_pickle(path: Path) -> Any:
    with path.open("rb") as file:
        # Files of torch before 1.6 are no archives, and cannot be mapped.
        is_archive = file.read(2) == b"PK"
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)


def _why(error: Exception) -> str:
    text = str(error)
    if found := _REFUSED.search(text):
        return f"is refused: it would run {format_message(found[1].rstrip('.'))} when it is read"
    if "TorchScript archive" in text:
        return "is a TorchScript module, no weights: say it with `source`"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"cannot be read: {format_message(first)}"
