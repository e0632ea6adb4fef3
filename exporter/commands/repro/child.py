"""Replace the weights, the inputs and the names of a reproducer by others."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
import runpy
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

_LINES = 5


def anonymize(
    original: Path, folder: Path, sources: str, samples: list[str], names: list[str] | None
) -> tuple[int, str]:
    """Write what a reproducer lacks, run it, and return its exit code and last lines.

    Args:
        original: A reproducer with the weights and inputs of the project.
        folder: The same reproducer without them.
        sources: The folder with Python files in both.
        samples: The folders with inputs in both.
        names: Names to hash with those of modules and classes. None: names are kept.
    """
    script = runpy.run_path(str(original / "repro.py"), run_name="original_reproducer")
    model = script["build"]()
    is_module = isinstance(model, torch.nn.Module)
    values = model.state_dict().values() if is_module else ()
    (folder / "weights.json").write_text(json.dumps([_measure(value) for value in values]))
    for sample in samples:
        (folder / sample).mkdir()
        for path in sorted((original / sample).glob("input_*.pb")):
            tensor = onnx.load_tensor(path)
            noise = numpy_helper.from_array(_draw(numpy_helper.to_array(tensor)), tensor.name)
            (folder / sample / path.name).write_bytes(noise.SerializeToString())
    if names is not None:
        inner = _list_names(model) if is_module else ()
        _hash_names(folder, folder / sources, {*names, *inner})
    command = [sys.executable, "-W", "ignore", "repro.py"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    return process.returncode, "\n".join(lines[-_LINES:])


def _measure(value: torch.Tensor) -> list[float] | None:
    """Return mean, deviation, minimum and maximum with two digits; None for other kinds."""
    if not value.is_floating_point() or not value.numel():
        return None
    exact = value.detach().double().flatten()
    exact = exact[exact.isfinite()]
    if not exact.numel():
        return None
    numbers = (exact.mean(), exact.std(correction=0), exact.min(), exact.max())
    return [float(f"{float(number):.2g}") for number in numbers]


def _draw(array: Any) -> Any:
    """Return noise with the shape, the dtype and the range of an array."""
    generator = np.random.default_rng(0)
    if not array.size:
        return array
    if array.dtype.kind in "iu":
        return generator.integers(
            array.min(), array.max(), array.shape, dtype=array.dtype, endpoint=True
        )
    if array.dtype.kind == "b":
        return generator.random(array.shape) < array.mean()
    if array.dtype.kind in "OSU":
        raise ValueError("an input is text, which cannot be replaced by noise")
    exact = array.astype(np.float64)
    finite = exact[np.isfinite(exact)]
    if not finite.size:
        return array
    noise = generator.normal(finite.mean(), finite.std(), array.shape)
    return noise.clip(finite.min(), finite.max()).astype(array.dtype)


def _list_names(model: torch.nn.Module) -> Iterator[str]:
    """Yield the names of modules and weights that are not torch's own."""
    for module in model.modules():
        if type(module).__module__.partition(".")[0] == "torch":
            continue
        yield from (name for name, _ in module.named_children())
        yield from (name for name, _ in module.named_parameters(recurse=False))
        yield from (name for name, _ in module.named_buffers(recurse=False))


def _hash_names(folder: Path, sources: Path, names: Iterable[str]) -> None:
    """Replace names in all texts; words of Python and torch are public and stay."""
    owners = (torch, torch.nn, torch.nn.functional, torch.Tensor, torch.nn.Module, builtins)
    public = {*keyword.kwlist, *(name for owner in owners for name in dir(owner))}
    codes = {path: _remove_texts(path.read_text("utf-8")) for path in sources.rglob("*.py")}
    names = set(names)
    for node in chain.from_iterable(map(ast.walk, codes.values())):
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    salt = secrets.token_bytes()
    hashed = {
        name: f"n{abs(hash((salt, name))):x}"[:12]
        for name in names
        if name not in public and not name.isdigit()
    }
    if not hashed:
        return
    longest_first = sorted(hashed, key=lambda name: -len(name))
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})\b")
    texts = {path: ast.unparse(tree) + "\n" for path, tree in codes.items()}
    texts |= {path: path.read_text("utf-8") for path in (folder / "repro.py", folder / "README.md")}
    for path, text in texts.items():
        path.write_text(pattern.sub(lambda match: hashed[match[1]], text), encoding="utf-8")


def _remove_texts(code: str) -> ast.Module:
    """Return the code without comments and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
