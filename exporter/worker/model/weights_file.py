"""Strict loading of the file of `weights`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from exporter.cache.fingerprint import hash_source
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure, format_message, wrap_errors

#: torch's message for a pickle that calls another function than those for tensors.
_UNSAFE = re.compile(r"(?:Unsupported (?:global: GLOBAL|class)|GLOBAL) (\S+)")


def require_hash(spec: ModelSpec, folder: Path) -> None:
    """Compare the file with the hash in the manifest, before any code of the model runs.

    Raises:
        Failure: Stage `source`.
    """
    if not spec.weights_sha256:
        return
    file = spec.weights or spec.source  # a saved model contains its weights
    actual = hash_source(folder / file)
    if actual != spec.weights_sha256:
        raise Failure(
            Stage.SOURCE,
            f"{file}: the sha256 is {actual or 'unknown (the file cannot be read)'}, "
            f"expected {spec.weights_sha256}; restore the file or correct `weights_sha256`",
        )


def load_weights(model: object, spec: ModelSpec, folder: Path) -> None:
    """Load the file of `spec.weights` into the model.

    Args:
        model: The model to change.
        spec: The contract.
        folder: The folder of the relative path.

    Raises:
        Failure: Stage `source`, if the file is not readable, if it contains other values than
            tensors by name, or if it does not fit the model. The message has the missing and
            unexpected names.
    """
    if not isinstance(model, torch.nn.Module):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(model).__name__}, which has no weights; remove `weights`",
        )
    state = _read_state(folder / spec.weights, spec.weights)
    with wrap_errors(Stage.SOURCE):
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            _, _, reasons = str(error).partition(":")
            text = f"{spec.weights} does not fit {spec.source}: {reasons.strip() or error}"
            raise Failure(Stage.SOURCE, format_message(text)) from error


def _read_state(path: Path, name: str) -> Mapping[str, Any]:
    try:
        content = _read_content(path)
    except Exception as error:
        raise Failure(Stage.SOURCE, f"{name} {_describe_error(error)}") from error
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        # A module may return any value for the key `_extra_state`.
        others = [
            key
            for key, value in content.items()
            if not isinstance(value, torch.Tensor) and not key.endswith("_extra_state")
        ]
        if content and not others:
            return content
        nested = [key for key, value in content.items() if isinstance(value, Mapping)]
        hint = f"; save its '{nested[0]}' only, if that has the weights" if nested else ""
        problem = f"more than tensors: {join_names(others)}{hint}" if others else "no tensors"
    else:
        problem = f"a {type(content).__name__}, expected tensors by name"
    raise Failure(Stage.SOURCE, format_message(f"{name} contains {problem}"))


def _read_content(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        # The tensors are mapped, so the copy in the model is the only one in memory.
        with safe_open(path, framework="pt", device="cpu") as tensors:
            return {key: tensors.get_tensor(key) for key in list(tensors.keys())}
    with path.open("rb") as file:
        # Files of torch before 1.6 are no archives and cannot be mapped.
        is_archive = file.read(2) == b"PK"
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)


def _describe_error(error: Exception) -> str:
    text = str(error)
    if match := _UNSAFE.search(text):
        return f"is refused: it would run {format_message(match[1].rstrip('.'))} when it is read"
    if "TorchScript archive" in text:
        return "is a TorchScript module, not a file of weights; name it in `source`"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"cannot be read: {format_message(first)}"
