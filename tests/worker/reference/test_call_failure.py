"""The reasons of calls in PyTorch that fail or break the declared shapes."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from exporter.jobs import JobFolder, Reference
from exporter.manifest import Axis, Case, ModelSpec, Output
from exporter.records.record import Stage, Status
from exporter.worker.process.failure import Failure
from exporter.worker.reference.reference_run import compute_reference
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract, make_fill

HERE = Path(__file__).relative_to(ROOT).as_posix()


class Sums(torch.nn.Module):
    """The sum of two inputs; `memory` makes the first one longer."""

    def __init__(self, memory: int = 0) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:, : self.memory]], 1) + y


class Table(torch.nn.Module):
    """A table with 6 rows that an integer input selects from."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(6, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids.relu())


class Positions(torch.nn.Module):
    """A table with 6 rows that the length of an axis selects from."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[0])
        return x + self.table[positions]


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, -1, 4).sum(0)


class Best(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.topk(3, dim=0).values


class FourRows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.reshape(4, -1))


class Labels(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        labels = x.argmax(1)
        return x * 2, labels


@pytest.fixture(autouse=True)
def _work_in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run_reference(model: torch.nn.Module, spec: ModelSpec, folder: Path) -> Reference:
    return compute_reference(model, spec, ROOT, JobFolder(folder))


def fail(model: torch.nn.Module, spec: ModelSpec, folder: Path) -> Failure:
    with pytest.raises(Failure) as caught:
        run_reference(model, spec, folder)
    assert caught.value.stage is Stage.SOURCE
    return caught.value


def declare_table(high: int, **changes: object) -> ModelSpec:
    fill = make_fill("randint", low=0, high=high)
    ids = declare_input("ids", "batch", dtype="int64", fill=fill)
    return make_contract("", inputs=(ids,), **changes)


def find_line(function: type, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    number = next(index for index, line in enumerate(lines, first) if text in line)
    return f"{HERE}:{number}"


def test_an_index_that_is_too_large_names_the_input_and_its_fill(tmp_path: Path) -> None:
    failure = fail(Table(), declare_table(1000), tmp_path)
    assert "IndexError: index out of range in self; input 'ids' has values from " in failure.message
    assert failure.message.endswith("(`randint = [0, 1000]`), but the table has 6 rows")
    assert failure.lines == (find_line(Table, "self.table(ids"),)


def test_an_index_inside_the_table_passes(tmp_path: Path) -> None:
    assert not any(s.error for s in run_reference(Table(), declare_table(6), tmp_path).samples)


def test_the_index_of_a_case_names_the_case(tmp_path: Path) -> None:
    case = Case(name="late", fills={"ids": make_fill("value", value=[1, 2, 9])})
    reference = run_reference(Table(), declare_table(6, cases=(case,)), tmp_path)
    errors = {sample.name: sample.error for sample in reference.samples if sample.error}
    line = find_line(Table, "self.table(ids")
    assert errors == {
        "late": f"IndexError: index out of range in self at {line}; input 'ids' has values from "
        "1 to 9 (case 'late'), but the table has 6 rows"
    }


def test_an_index_from_a_size_has_its_range(tmp_path: Path) -> None:
    spec = make_contract("", "x [batch, 4] -> y [batch, 4]")
    reference = run_reference(Positions(), spec, tmp_path)
    errors = {sample.name: sample.error for sample in reference.samples if sample.error}
    line = find_line(Positions, "self.table[positions]")
    assert errors == {
        f"batch={size}": "IndexError: index 6 is out of bounds for dimension 0 with size 6 "
        f"at {line}; the indices are 0 to {size - 1}, but the table has 6 rows"
        for size in (7, 16)
    }


def test_the_number_of_topk_is_no_dimension(tmp_path: Path) -> None:
    """The search for the table of an index ended the worker."""
    spec = make_contract("", "x [batch, 4] -> y [3, 4]")
    reference = run_reference(Best(), spec, tmp_path)
    errors = [sample.error for sample in reference.samples if sample.error]
    line = find_line(Best, "x.topk")
    assert set(errors) == {f"RuntimeError: selected index k out of range at {line}"}


def test_a_refused_example_shows_its_size(tmp_path: Path) -> None:
    spec = make_contract("", outputs=(declare_output("y", "rows", 4),))
    failure = fail(Halves(), spec, tmp_path)
    assert failure.message == (
        "RuntimeError: shape '[2, -1, 4]' is invalid for input of size 12; "
        "PyTorch accepts only other sizes: axes.batch = { example = 10, multiple_of = 2 }"
    )
    assert failure.lines == (find_line(Halves, "x.reshape"),)


@pytest.mark.parametrize(
    ("model", "shapes", "end"),
    [
        (torch.nn.Linear(6, 8), [["batch", 7]], "PyTorch accepts 'x' with shape = ['batch', 6]"),
        (
            torch.nn.Conv1d(2, 2, 1),
            [["batch", 5, 9]],
            "PyTorch accepts 'x' with shape = ['batch', 2, 9]",
        ),
        (
            torch.nn.Conv1d(2, 2, 11),
            [["batch", 2, "length"]],
            "PyTorch accepts only other sizes: axes.length = { example = 14, min = 11 }",
        ),
        (
            Sums(),
            [["batch", 2], [1, 7]],
            "PyTorch accepts 'x' with shape = ['batch', 7]",
        ),
        (
            Sums(),
            [["batch", "rows"], ["batch", "columns"]],
            "PyTorch accepts 'x' with shape = ['batch', 'columns']: 'y' has columns = 7, and 'x' 5",
        ),
        (
            Sums(2),
            [["batch", "rows"], ["batch", "rows"]],
            "PyTorch accepts 'y' with shape = ['batch', 7]: 'x' has rows = 5, and 'y' 7",
        ),
        (
            torch.nn.Embedding(6, 3),
            [["batch"]],
            "PyTorch accepts 'x' with dtype = 'int64'",
        ),
    ],
)
def test_a_refused_call_names_the_shape_that_works(
    model: torch.nn.Module, shapes: list[list[int | str]], end: str, tmp_path: Path
) -> None:
    inputs = tuple(
        declare_input("xy"[index], *shape, at=f"args[{index}]")
        for index, shape in enumerate(shapes)
    )
    names = dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str))
    axes = tuple(Axis(name=name, example=3 + 2 * index) for index, name in enumerate(names))
    failure = fail(model, make_contract("", inputs=inputs, axes=axes), tmp_path)
    assert failure.message.endswith(f"; {end}"), failure.message


def test_a_size_that_the_model_writes_out_can_be_computed(tmp_path: Path) -> None:
    spec = make_contract("", inputs=(declare_input("x", "batch", 8),))
    line = find_line(FourRows, "reshape(4")
    failure = fail(FourRows(), spec, tmp_path)
    assert failure.message.endswith(
        f"; PyTorch accepts 'x' with shape = [4, 8]; to accept each size, compute the 4 at {line} "
        "from a shape"
    )


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.Linear(4, 4)() + mask


def test_a_wrong_number_of_arguments_shows_the_entry_and_the_signature(tmp_path: Path) -> None:
    failure = fail(Masked(), make_contract(""), tmp_path)
    assert failure.message.endswith(
        "missing 1 required positional argument: 'mask'; the entry declares x, the signature is "
        "(x, mask); declare one input or constant for each argument"
    )
    two = (declare_input(), declare_input("mask", at="args[1]"))
    inside = fail(Masked(), make_contract("", inputs=two), tmp_path)
    assert inside.message.startswith("TypeError: ")
    assert "signature" not in inside.message
    assert "axes" not in inside.message


@pytest.mark.parametrize(
    ("y", "labels", "message", "text"),
    [
        (
            declare_output("y", "batch", 3),
            declare_output("labels", "batch", dtype="int64"),
            (
                "output 'y' is declared [batch, 3] with batch=3, PyTorch gives [3, 4]; "
                "correct the model, or declare the outputs as PyTorch returns them"
            ),
            "return x * 2",
        ),
        (
            declare_output("y", "batch", 4),
            declare_output("labels", "batch", dtype="int32"),
            (
                "output 'labels' is declared int32, PyTorch gives int64; "
                "correct the model, or declare the outputs as PyTorch returns them"
            ),
            "x.argmax",
        ),
        (
            declare_output("y", "batch", 4),
            declare_output("labels", 3, dtype="int64"),
            (
                "batch=7: output 'labels' is declared [3], PyTorch gives [7]; also on "
                "batch=1, batch=2, batch=16; correct the model, or declare the outputs as "
                "PyTorch returns them"
            ),
            "x.argmax",
        ),
    ],
)
def test_an_output_that_breaks_the_contract_is_a_failure_of_the_source(
    y: Output, labels: Output, message: str, text: str, tmp_path: Path
) -> None:
    failure = fail(Labels(), make_contract("", outputs=(y, labels)), tmp_path)
    assert failure.status is Status.FAIL
    assert failure.message == message
    assert failure.lines == (find_line(Labels, text),)


def test_an_error_before_a_wrong_shape_is_reported_first(tmp_path: Path) -> None:
    spec = make_contract("", axes=(Axis(name="batch", example=2),))
    failure = fail(
        Halves(), spec.model_copy(update={"outputs": (declare_output("y", 1, 4),)}), tmp_path
    )
    line = find_line(Halves, "x.reshape")
    assert failure.message.startswith(
        "PyTorch itself fails on batch=5: RuntimeError: shape '[2, -1, 4]' is invalid for input of "
        f"size 20 at {line}; "
    )


def test_outputs_as_declared_pass(tmp_path: Path) -> None:
    outputs = (declare_output("y", "batch", 4), declare_output("labels", "batch", dtype="int64"))
    assert run_reference(Labels(), make_contract("", outputs=outputs), tmp_path).samples


class Keywords(torch.nn.Module):
    def forward(self, *, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask


class Optional(torch.nn.Module):
    """A model whose other branch fails without the keyword."""

    def forward(self, text: object = None, x: torch.Tensor = None, mask: object = None):  # type: ignore[no-untyped-def, assignment]
        return x * mask if text is None else text.lower()  # type: ignore[attr-defined, operator]


@pytest.mark.parametrize("model", [Keywords(), Optional()], ids=["keywords", "optional"])
def test_a_model_that_takes_keywords_names_their_places(
    model: torch.nn.Module, tmp_path: Path
) -> None:
    inputs = (declare_input("x"), declare_input("mask", at="args[1]"))
    failure = fail(model, make_contract("", inputs=inputs), tmp_path)
    expected = "PyTorch accepts keywords: at = 'kwargs.x', at = 'kwargs.mask'"
    assert failure.message.endswith(expected), failure.message


def test_an_error_that_keywords_do_not_repair_names_none(tmp_path: Path) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.no_such_name()  # type: ignore[operator]

    failure = fail(Broken(), make_contract(""), tmp_path)
    assert "kwargs" not in failure.message


def test_an_output_that_the_entry_lacks_is_a_line_to_add(tmp_path: Path) -> None:
    failure = fail(Labels(), make_contract(""), tmp_path)
    table = '{ name = "output_1", shape = ["batch"], dtype = "int64" }'
    assert failure.message.endswith(f"; add {table} to `outputs`")


class MappedOutputs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"probs": x.softmax(-1), "y": x * 2}


def test_an_entry_that_lacks_a_key_of_a_mapping_gets_its_name(tmp_path: Path) -> None:
    spec = make_contract("", outputs=(declare_output("y", "batch", 4),))
    failure = fail(MappedOutputs(), spec, tmp_path)
    assert failure.message.endswith('; add { name = "probs", shape = ["batch", 4] } to `outputs`')


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (torch.nn.Embedding(6, 3), "int64"),
        (torch.nn.Linear(4, 3).bfloat16(), "bfloat16"),
    ],
    ids=["ids", "weights"],
)
def test_another_dtype_of_one_input_is_tried(
    model: torch.nn.Module, dtype: str, tmp_path: Path
) -> None:
    failure = fail(model, make_contract(""), tmp_path)
    assert failure.message.endswith(f"PyTorch accepts 'x' with dtype = '{dtype}'")
