"""Prove the models of PyTorch's own exporter tests, and judge each green file by its test.

Input: `python -m benchmarks.pytorch_tests FILE`, where FILE is
`test/onnx/test_pytorch_onnx_onnxruntime.py` in a checkout of PyTorch. `--tests GLOB ...` selects
tests, `--calls 1` the first call of each, and `--judge` repeats the judgement only. Each call of
`run_test` becomes an entry with its inputs and dynamic axes, at opsets 17 (TorchScript) and 18
(dynamo). Then each green file runs in ONNX Runtime on all inputs of the test, and is compared with
PyTorch at the tolerance of the test. The exit code is 1 if a green file fails its test.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor, nn

from benchmarks.pytorch_tests import cases
from benchmarks.pytorch_tests.cases import Case, list_cases, run_eagerly
from exporter.records.record import Record, read_run

FOLDER = Path(__file__).parents[2] / "build/pytorch-tests"
OPSETS = (17, 18)
_DTYPES = ("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
_MOST_ELEMENTS = 1_000_000


class Unsuitable(Exception):
    """A call that no manifest can express, with the reason."""


def main(arguments: Sequence[str]) -> int:
    """Prove and judge the tests that the arguments name."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    options = _parser().parse_args(arguments)
    file = options.file.resolve()
    selected = [
        (f"{test[5:].lower()}-{number}", test, number, case)
        for test, number, case in list_cases(file, options.tests)
        if number < options.calls
    ]
    if not options.judge:
        shutil.rmtree(FOLDER, ignore_errors=True)
        print(*_write_project(file, selected), sep="\n", flush=True)
        command = [sys.executable, "-m", "exporter", "export", "--root", str(FOLDER), "--no-store"]
        subprocess.run([*command, "--quiet"], check=False, stdout=subprocess.DEVNULL)
    by_model = {name: case for name, _, _, case in selected}
    records = read_run(FOLDER / "build/results.json").records
    tests = {name: test for name, test, _, _ in selected}
    print(f"{len({tests[each.cell.model] for each in records})} tests, {len(records)} cells")
    print(_count(f"{each.cell.opset}: {each.status}" for each in records))
    wrong = 0
    for record in records:
        if record.artifact is None:
            continue
        problem = find_problem(FOLDER / "build" / record.artifact.file, by_model[record.cell.model])
        if record.status.is_green and problem:
            wrong += 1
            print(f"wrong: {record.cell}: {problem}")
        if not record.status.is_green and not problem:
            print(f"red, and its test passes: {_describe(record)}")
    green = sum(record.status.is_green for record in records)
    print(f"{green} green cells, {green - wrong} of them pass PyTorch's test")
    return 1 if wrong else 0


def _describe(record: Record) -> str:
    place = "/".join(str(part) for part in (record.stage, record.check) if part)
    return f"{record.cell}: {place}: {' '.join(record.message.split())[:200]}"


def _count(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _write_project(file: Path, selected: Sequence[tuple[str, str, int, Case]]) -> Iterator[str]:
    """Write the manifest; yield the number of calls that are left out for each reason."""
    manifests = FOLDER / "manifests"
    manifests.mkdir(parents=True)
    (FOLDER / "pyproject.toml").write_text("[tool.exporter]\n")
    shutil.copy(cases.__file__, manifests / "cases.py")
    lines = ["format = 1", ""]
    unsuitable = []
    for name, test, number, case in selected:
        try:
            entry = list(_make_entry(name, case))
        except Unsuitable as error:
            unsuitable.append(str(error))
            continue
        values = {f"x{place}": tensor.numpy() for place, tensor in enumerate(case.calls[0])}
        np.savez(manifests / f"{name}.npz", **values)
        call = f'{{ file = "{file}", test = "{test}", call = {number} }}'
        lines += [f'[models."{name}"]', 'source = "cases.py:build"', f"init = {call}"]
        lines += [f"opsets = {list(OPSETS)}", *entry, ""]
    (manifests / "tests.toml").write_text("\n".join(lines))
    yield f"{len(selected) - len(unsuitable)} of {len(selected)} calls have an entry"
    if unsuitable:
        yield f"left out: {_count(unsuitable)}"


def _make_entry(name: str, case: Case) -> Iterator[str]:
    """Yield the lines of `inputs` and `outputs`.

    Raises:
        Unsuitable: if the call cannot be expressed.
    """
    if not case.has_only_tensors or case.options["input_kwargs"]:
        raise Unsuitable("no module, or other arguments than tensors")
    if case.options.get("training", torch.onnx.TrainingMode.EVAL) != torch.onnx.TrainingMode.EVAL:
        raise Unsuitable("training mode")
    call = case.calls[0]
    if not call or sum(each.numel() for each in call) > _MOST_ELEMENTS:
        raise Unsuitable("no input, or a large one")
    axes = find_axes(case)
    outputs = _list_output_shapes(case.model.eval(), call, axes)
    for key, tensors, shapes in (
        ("inputs", call, [_name_sizes(each, axes[place]) for place, each in enumerate(call)]),
        ("outputs", outputs, list(outputs.values())),
    ):
        yield f"{key} = ["
        for place, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
            dtype = _name_dtype(tensor)
            fill = f', fill = {{ file = "{name}.npz:x{place}" }}' if key == "inputs" else ""
            text = json.dumps(shape)
            yield f'  {{ name = "{key[0]}{place}", shape = {text}, dtype = "{dtype}"{fill} }},'
        yield "]"


def _name_dtype(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise Unsuitable(f"dtype {dtype}")
    return dtype


def find_axes(case: Case) -> list[frozenset[int]]:
    """Return the dimensions of each input that the test declares as dynamic."""
    declared = case.options.get("dynamic_axes") or {}
    names = case.options.get("input_names") or []
    axes = [frozenset(declared.get(name, ())) for name in names]
    axes += [frozenset()] * (len(case.calls[0]) - len(axes))
    return [
        frozenset(axis % each.dim() for axis in axes[place] if each.dim())
        for place, each in enumerate(case.calls[0])
    ]


def _name_sizes(tensor: Tensor, dynamic: frozenset[int]) -> list[int | str]:
    """Return a shape in which equal dynamic sizes are one axis."""
    return [f"n{size}" if axis in dynamic else size for axis, size in enumerate(tensor.shape)]


def _list_output_shapes(
    model: nn.Module, call: tuple[Tensor, ...], axes: list[frozenset[int]]
) -> dict[Tensor, list[int | str]]:
    """Return the outputs with their shapes; a size that changes with the inputs is an axis."""
    try:
        larger = tuple(_enlarge(each, axes[place]) for place, each in enumerate(call))
        outputs = run_eagerly(model, call)
        repeated = run_eagerly(model, call)
        others = run_eagerly(model, larger)
    except Exception as error:
        raise Unsuitable("the model does not run, also at other sizes") from error
    for output in outputs:
        _name_dtype(output)  # a quantized tensor has no `nan_to_num`
    pairs = zip(outputs, repeated, strict=True)
    same = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
    if not outputs or not same or len(outputs) != len(others):
        raise Unsuitable("a random output, or none")
    shapes: dict[Tensor, list[int | str]] = {}
    for place, (output, other) in enumerate(zip(outputs, others, strict=True)):
        if output.dim() != other.dim():
            raise Unsuitable("the rank changes")
        sizes = enumerate(zip(output.shape, other.shape, strict=True))
        shapes[output] = [a if a == b else f"y{place}_{axis}" for axis, (a, b) in sizes]
    return shapes


def _enlarge(tensor: Tensor, dynamic: frozenset[int]) -> Tensor:
    for axis in dynamic:
        size = tensor.shape[axis]
        tensor = tensor.index_select(axis, torch.arange(size + 1) % size)
    return tensor


def find_problem(path: Path, case: Case) -> str:
    """Return the first difference between a file and PyTorch on the inputs of the test, or ""."""
    dynamic = find_axes(case)
    model = case.model.eval()
    try:
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for call in case.calls:
            if not _is_promised(call, case.calls[0], dynamic):
                continue
            expected = [each.numpy() for each in run_eagerly(model, call)]
            feeds = {f"i{place}": each.numpy() for place, each in enumerate(call)}
            used = {each.name: feeds[each.name] for each in session.get_inputs()}
            for actual, right in zip(session.run(None, used), expected, strict=True):
                tolerance = {key: case.options[key] for key in ("rtol", "atol")}
                np.testing.assert_allclose(actual, right, **tolerance)
                if actual.shape != right.shape or actual.dtype != right.dtype:
                    return f"{actual.dtype}{actual.shape} for {right.dtype}{right.shape}"
    except Exception as error:  # noqa: BLE001 - a run that raises is a file that fails its test
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


def _is_promised(
    call: tuple[Tensor, ...], first: tuple[Tensor, ...], dynamic: list[frozenset[int]]
) -> bool:
    """Return whether the entry contains the sizes of a call."""
    if [(each.dtype, each.dim()) for each in call] != [(each.dtype, each.dim()) for each in first]:
        return False
    sizes: dict[int, int] = {}
    for place, each in enumerate(call):
        for axis, size in enumerate(each.shape):
            example = first[place].shape[axis]
            expected = sizes.setdefault(example, size) if axis in dynamic[place] else example
            if size != expected:
                return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pytorch_tests", description=__doc__)
    parser.add_argument("file", type=Path, help="test_pytorch_onnx_onnxruntime.py of a checkout")
    parser.add_argument("--tests", nargs="*", default=["*"], help="globs over names of tests")
    parser.add_argument("--calls", type=int, default=sys.maxsize, help="calls of each test")
    parser.add_argument("--judge", action="store_true", help="judge the files of the last run")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
