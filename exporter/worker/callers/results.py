"""The results of a caller and of its reference, as arrays with names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
#: Arrays by their key in the result: `` for an array alone, `.boxes`, `[0].label`.
Values: TypeAlias = dict[str, Array]

_FORMS = "expected arrays, numbers and texts, also in lists and dicts"


def list_values(result: object, key: str = "") -> Values:
    """Return the arrays of a result by their keys; a text is an array of text.

    Raises:
        TypeError: If a part of the result is something else.
    """
    if result is None:
        return {}
    if isinstance(result, Mapping):
        items = {f"{key}.{name}": value for name, value in result.items()}
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        fields = dataclasses.fields(result)
        items = {f"{key}.{each.name}": getattr(result, each.name) for each in fields}
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        items = {f"{key}.{name}": getattr(result, name) for name in result._fields}
    elif isinstance(result, Sequence) and not isinstance(result, str | bytes):
        if (array := _find_array(result)) is not None:
            return {key: array}
        items = {f"{key}[{index}]": value for index, value in enumerate(result)}
    else:
        return {key: _to_array(result, key)}
    values: Values = {}
    for name, value in items.items():
        values |= list_values(value, name)
    return values


def _find_array(result: Sequence[object]) -> Array | None:
    """Return the array of a list, or of lists of one length, that contains only numbers."""
    if not result or any(isinstance(each, str | Mapping) for each in result):
        return None
    try:
        array = np.asarray(result)
    except ValueError:  # the lists have several lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _to_array(value: object, key: str) -> Array:
    if hasattr(value, "detach"):  # a tensor, without an import of torch
        value = value.detach().cpu().numpy()
    is_simple = isinstance(value, np.ndarray | np.generic | bool | int | float | complex | str)
    if not is_simple and not hasattr(value, "__array__"):
        raise TypeError(f"{name_value(key)} is a {type(value).__name__}; {_FORMS}")
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise TypeError(f"{name_value(key)} is an array of objects; {_FORMS}")
    return array


def name_value(key: str) -> str:
    """Return the key of a value in a message: `the result`, `result.boxes`."""
    return f"result{key}" if key else "the result"


def write_values(path: Path, tables: Iterable[Values]) -> None:
    """Write the tables of arrays into one `.npz` file."""
    arrays: list[Array] = []
    names: list[list[str]] = []
    for table in tables:
        names.append([*table])
        arrays += [np.ascontiguousarray(array) for array in table.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, np.array(json.dumps(names)), *arrays)


def read_values(path: Path) -> list[Values]:
    """Return the tables of a file that `write_values` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = iter(file[f"arr_{index}"] for index in range(1, len(file.files)))
        return [{name: next(arrays) for name in names} for names in json.loads(str(file["arr_0"]))]
