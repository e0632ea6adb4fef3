"""The weights of a model from a file: its tensors, and the names that they have in the model."""

from __future__ import annotations

import pickle
import pickletools
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from exporter.core.errors import suggest_nearest
from exporter.core.files import open_regular_file
from exporter.core.text import join_names
from exporter.manifest import ModelSpec, StateNames
from exporter.records.record import Stage
from exporter.worker.model.model_kinds import Model, ScriptedFunction
from exporter.worker.process.failure import Failure, format_message, wrap_errors

#: torch's message for a pickle of a later protocol, which does not name the function.
_NO_CALL = "Unsupported operand"
#: The bytes of an archive that contain the begin of its pickle.
_HEAD = 1 << 12
#: The first bytes of a file that Git LFS has not fetched.
_POINTER = b"version https://git-lfs"
#: torch's message for a pickle that calls another function than those for tensors.
_UNSAFE = re.compile(r"(?:Unsupported (?:global: GLOBAL|class)|GLOBAL) (\S+)")


def load_weights(model: Model, spec: ModelSpec, folder: Path) -> None:
    """Load the file of `spec.weights` into the model.

    A failure has the missing and unexpected names.
    """
    if isinstance(model, ScriptedFunction):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a ScriptFunction, which has no weights; remove `weights`",
        )
    try:
        state = _read_state(folder / spec.weights, spec.weights, spec.weights_names)
    except Failure as failure:  # the key gives the failure its code
        raise Failure(failure.stage, f"`weights`: {failure.message}") from failure.__cause__
    with wrap_errors(Stage.SOURCE):
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            _, _, reasons = str(error).partition(":")
            reason = reasons.strip() or error
            text = f"`weights`: {spec.weights} does not fit {spec.source}: {reason}"
            key = spec.weights_names.key
            expected = {name: value.shape for name, value in model.state_dict().items()}
            names = [
                each
                for each in find_names(state, list(expected), key)
                if all(each.rename(state)[name].shape == expected[name] for name in expected)
            ]
            if expected and not names and not set(state).intersection(expected):
                text = f"`weights`: {spec.weights} is of another model than {spec.source}: it has "
                text += f"{join_names([*state], 3)}, and the model {join_names([*expected], 3)}; "
                text += "name the file of this model, or the class of this file in `source`"
            if names and names[0] != StateNames(key=key):
                text = f"{spec.weights} has the names of the model with another prefix; "
                text += f"set `weights = {{ {names[0].format(spec.weights)} }}`"
            raise Failure(Stage.SOURCE, format_message(text)) from error


def find_names(
    names: Collection[str], expected: Collection[str], key: str = ""
) -> Iterator[StateNames]:
    """Yield the prefixes with which the table `key` of a file contains the names of a state."""
    parts = next(iter(expected), "").split(".")
    ends = [".".join(parts[index:]) for index in range(len(parts))]
    prefixes = {
        (name.removesuffix(end), ends[0].removesuffix(end))
        for end in ends
        for name in names
        if f".{name}".endswith(f".{end}")
    }
    for strip, prefix in sorted(prefixes):
        pairs = StateNames(key=key, strip=strip, prefix=prefix)
        if pairs.rename(dict.fromkeys(names)).keys() >= {*expected}:
            yield pairs


def _read_state(path: Path, name: str, names: StateNames) -> Mapping[str, Any]:
    """Return the tensors of a file by their names in the model."""
    try:
        content = read_weights(path)
    except Exception as error:
        raise Failure(Stage.SOURCE, f"{name} {_describe_error(error, path)}") from error
    if names.key:
        if not isinstance(content, Mapping) or names.key not in content:
            keys = [str(key) for key in content] if isinstance(content, Mapping) else []
            hint = suggest_nearest(names.key, keys) or f"; it has {join_names(keys)}"
            raise Failure(Stage.SOURCE, f"{name} has no key '{names.key}'{hint}")
        content, name = content[names.key], f"{name}: the table '{names.key}'"
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        # A module may return any value for the key `_extra_state`.
        others = [
            key
            for key, value in content.items()
            if not isinstance(value, torch.Tensor) and not key.endswith("_extra_state")
        ]
        if content and not others:
            if state := names.rename(content):
                return state
            message = f"{name} has no name that begins with '{names.strip}'; correct `strip`"
            raise Failure(Stage.SOURCE, message)
        nested = [key for key, value in content.items() if isinstance(value, Mapping)]
        hint = f"; set `weights = {{ {StateNames(key=nested[0]).format(name)} }}`" if nested else ""
        problem = f"more than tensors: {join_names(others)}{hint}" if others else "no tensors"
    else:
        problem = f"a {type(content).__name__}, expected tensors by name"
    raise Failure(Stage.SOURCE, format_message(f"{name} contains {problem}"))


def read_weights(path: Path) -> Any:
    """Return the content of a file of weights; only tensors and plain values are read."""
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        # The tensors are mapped, so the copy in the model is the only one in memory.
        with safe_open(path, framework="pt", device="cpu") as tensors:
            return {key: tensors.get_tensor(key) for key in list(tensors.keys())}
    with open_regular_file(path, may_be_link=True) as file:
        # Files of torch before 1.6 are no archives and cannot be mapped.
        head = file.read(len(_POINTER))
    if head == _POINTER:
        raise ValueError("it is a pointer of Git LFS; run `git lfs pull`")
    is_archive = head.startswith(b"PK")
    if not is_archive and not head.startswith(pickle.PROTO):
        raise ValueError(f"it begins with {head[:8]!r}, so `torch.save` did not write it")
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)


def _describe_error(error: Exception, path: Path) -> str:
    text = str(error)
    match = _UNSAFE.search(text)
    name = match[1].rstrip(".") if match else _find_call(path) if _NO_CALL in text else ""
    if name:
        name = format_message(name)
        return f"is refused: it would run {name} when it is read; save `model.state_dict()`"
    if _NO_CALL in text:
        return "has another protocol than `torch.save` writes; save `model.state_dict()` again"
    if "TorchScript archive" in text:
        return "is a TorchScript module, not a file of weights; name it in `source`"
    text = text.rpartition("WeightsUnpickler error:")[2]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"cannot be read: {format_message(first)}"


def _find_call(path: Path) -> str:
    """Return the first function of a pickle of protocol 4 or later, or ""."""
    texts = ["", ""]
    with suppress(OSError, ValueError), open_regular_file(path, may_be_link=True) as file:
        # An archive has the pickle as a member without compression.
        start = file.read(_HEAD).find(pickle.PROTO)
        file.seek(max(start, 0))
        for operation, value, _ in pickletools.genops(file):
            is_call = operation.name == "STACK_GLOBAL" and not texts[0].startswith("torch")
            if is_call and texts != ["collections", "OrderedDict"]:
                return ".".join(texts)
            if isinstance(value, str):
                texts = [texts[1], value]
    return ""
