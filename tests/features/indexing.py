"""Reads and writes by an index: each form that the documentation lists, supported or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.records.record import Stage
from tests.features.feature import (
    SOUND,
    Feature,
    Referred,
    Section,
    Verdict,
    parity,
    refused,
)

_OPSETS = "opsets = [9, 11, 18]"
_DATA = 'inputs = [{ name = "data", shape = [4, 5, 6] }]'
_INDEX = """
inputs = [
  { name = "data", shape = [4, 5] },
  { name = "index", shape = [2], dtype = "int64", fill = { randint = [0, 4] } },
]
cases = [{ name = "negative", values = { index = [-1, -3] } }]
"""
_SINCE_11: Mapping[str, Verdict] = {
    "<11": refused(Stage.CONVERT, "Please try opset version 11"),
    ">=11": SOUND,
}


def _read(
    form: str,
    code: str,
    shape: Sequence[int],
    verdicts: Mapping[str, Verdict] | None = None,
    note: str = "",
) -> Feature:
    return Feature(
        name=f"read by {form}",
        api=code,
        model="indexing.py:Read",
        rest="\n".join(
            [
                f'init = {{ form = "{form}" }}',
                _DATA,
                f'outputs = [{{ name = "read", shape = {list(shape)} }}]',
                _OPSETS,
            ]
        ),
        verdicts=verdicts or {"*": SOUND},
        note=note,
    )


def _write(
    form: str,
    code: str,
    verdicts: Mapping[str, Verdict] = _SINCE_11,
    note: str = "",
) -> Feature:
    return Feature(
        name=f"write by {form}",
        api=code,
        torch="1.5+",
        model="indexing.py:Write",
        rest="\n".join(
            [
                f'init = {{ form = "{form}" }}',
                _DATA,
                'outputs = [{ name = "written", shape = [4, 5, 6] }]',
                _OPSETS,
            ]
        ),
        verdicts=verdicts,
        note=note,
    )


READS = (
    _read("numbers", "data[0, 1]", [6]),
    _read("a negative number", "data[-1]", [5, 6]),
    _read("a slice", "data[:3]", [3, 5, 6]),
    _read(
        "a slice with a step",
        "data[:, ::2]",
        [4, 3, 6],
        {"<10": refused(Stage.CONVERT, "step!=1 is currently not supported"), ">=10": SOUND},
    ),
    _read("None and an ellipsis", "data[None, ..., 0]", [1, 4, 5]),
    _read("a tensor of rank 1", "data[torch.tensor([2, 3])]", [2, 5, 6]),
    _read("a tensor of rank 2", "data[torch.tensor([[1, 2], [2, 3]])]", [2, 2, 5, 6]),
    _read("two tensors", "data[torch.tensor([2, 3]), torch.tensor([1, 2])]", [2, 6]),
    _read(
        "tensors of rank 2 and 1",
        "data[torch.tensor([[1, 2], [2, 3]]), torch.tensor([2, 3])]",
        [2, 2, 6],
    ),
    _read(
        "two tensors that are not consecutive",
        "data[torch.tensor([2, 3]), :, torch.tensor([1, 2])]",
        [2, 5],
    ),
    _read("a mask", "data[torch.tensor([True, False, True, True])]", [3, 5, 6]),
    _read(
        "a negative tensor",
        "data[torch.tensor([[1, 2], [2, -3]]), torch.tensor([-2, 3])]",
        [2, 2, 6],
        {"<18": parity("parity", "output 'read': error"), ">=18": SOUND},
        "Not supported according to the documentation: TorchScript reads other elements without a"
        " warning. Use positive numbers, or dynamo.",
    ),
    Feature(
        name="read by an index that is an input",
        api="data[index]",
        model="indexing.py:ReadAt",
        lines=_INDEX,
        rest=f'outputs = [{{ name = "read", shape = [2, 5] }}]\n{_OPSETS}',
        note="One index may be negative in both exporters.",
    ),
)

WRITES = (
    _write("numbers", "data[0, 1] = new"),
    _write("a slice", "data[:3] = new"),
    _write("a column", "data[:, 2] = new"),
    _write("a mask", "data[data > 0.5] = 0.25"),
    _write("a tensor of rank 1", "data[torch.tensor([2, 0])] = new"),
    _write("a tensor of rank 2", "data[torch.tensor([[1, 2], [0, 3]])] = new"),
    _write("two tensors", "data[torch.tensor([2, 3]), torch.tensor([2, 3])] = new"),
    _write(
        "tensors of rank 2 and 1",
        "data[torch.tensor([[1, 2], [0, 3]]), torch.tensor([2, 3])] = new",
        note="Not supported according to the documentation; it is right in torch 2.13.",
    ),
    _write(
        "negative tensors",
        "data[torch.tensor([1, -2]), torch.tensor([-2, 3])] = new",
        note="Not supported according to the documentation; it is right in torch 2.13.",
    ),
    _write(
        "two tensors that are not consecutive",
        "data[torch.tensor([2, 3]), :, torch.tensor([1, 2])] = new",
        {"<18": refused(Stage.CONVERT, "Only consecutive 1-d tensor indices"), ">=18": SOUND},
        "Under TorchScript, transpose `data` until they are consecutive.",
    ),
    _write(
        "a value that is broadcast",
        "data[torch.tensor([[0, 2], [1, 3]]), 1:3] = new",
        {
            "<11": refused(Stage.CONVERT, "Please try opset version 11"),
            "11..17": parity("parity", "the runtime fails"),
            ">=18": SOUND,
        },
        "`new` has rank 1. Under TorchScript, expand it to the shape that is written.",
    ),
    Referred(
        name="more on writes",
        api="data[index] = new",
        torch="1.5+",
        traps=(
            "index write",
            "index write after an ellipsis",
            "write through a view",
            "write through a view under dynamo",
            "caller's input changed in place",
        ),
    ),
)

SECTION = Section(
    name="Indexing",
    text="Each form that the documentation lists, on `data` of `[4, 5, 6]`, with `init` choosing "
    "the form in the model of the row.",
    rows=(*READS, *WRITES),
)
