"""Weights of large models are pages of a file, at their addresses and with their values."""

from __future__ import annotations

import copy
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from exporter.worker.model import mapped_weights
from exporter.worker.model.captured_models import convert_to_module
from exporter.worker.model.mapped_weights import copy_in_float64, map_weights
from exporter.worker.model.source_loader import digest_weights, load_model
from exporter.worker.process.fork_call import compute_in_fork
from exporter.worker.reference import eager_run
from exporter.worker.reference.eager_run import build_float64_model, describe_float64_run
from exporter.worker.reference.large_float64 import Float64Wrapper
from tests.worker.contracts import make_contract

#: A square weight of 1 MB in float32; it has whole pages wherever it lies.
WIDTH = 520


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "LARGE_MODEL", 3 * WIDTH * WIDTH * 4)
    monkeypatch.setattr(mapped_weights, "_LARGE_STORAGE", 1 << 12)


def list_mapped(model: nn.Module) -> list[str]:
    """Return the names of the weights with pages of a file."""
    return [name for name, weight in model.state_dict().items() if is_mapped(weight)]


def is_mapped(weight: torch.Tensor) -> bool:
    middle = weight.untyped_storage().data_ptr() + weight.untyped_storage().nbytes() // 2
    mappings = (each for each in list_file_mappings() if each.mode == "rw-p")
    return any(each.start <= middle < each.end for each in mappings)


def list_file_mappings() -> list[mapped_weights._Mapping]:
    """Return the memory of temporary files of this process."""
    return [each for each in mapped_weights._read_mappings() if each.inode != "0"]


class Stack(nn.Module):
    """Layers with a tied weight, and with references that no module registers."""

    def __init__(self, count: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        first, last = self.layers[0], self.layers[-1]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        if count > 1:
            last.weight = first.weight
        self.register_buffer("table", torch.arange(WIDTH * WIDTH).reshape(WIDTH, WIDTH))
        self.views = (first.weight.detach().t(), first.weight.detach()[3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def build(create: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    with map_weights() as store:
        model = create()
        store(model)
    return model


def test_all_large_weights_move_and_keep_their_values() -> None:
    torch.manual_seed(3)
    expected = Stack()
    model = build(Stack)
    names = [name for name in model.state_dict() if not name.endswith("bias")]
    assert set(list_mapped(model)) == set(names)
    assert list_mapped(expected) == []
    assert digest_weights(model) == digest_weights(expected)
    x = torch.ones(2, WIDTH)
    assert torch.equal(model(x), expected(x))


def test_a_small_model_stays_in_memory() -> None:
    assert list_mapped(build(lambda: nn.Linear(WIDTH, WIDTH))) == []


def test_views_and_tied_weights_remain_one_memory() -> None:
    model = build(Stack)
    assert model.layers[0].weight is model.layers[-1].weight
    with torch.no_grad():
        model.layers[0].weight[3].fill_(7.0)
    assert bool((model.views[0][:, 3] == 7).all())
    assert bool((model.views[1] == 7).all())
    assert bool((model.layers[-1].weight[3] == 7).all())


def test_a_write_in_a_fork_stays_there() -> None:
    model = build(Stack)
    before = digest_weights(model)

    def change() -> float:
        with torch.no_grad():
            row = model.layers[1].weight[WIDTH // 2]
            return float(row.fill_(5.0).max())

    assert compute_in_fork(change) == 5.0
    assert digest_weights(model) == before


def test_weights_move_while_the_model_is_built() -> None:
    seen: list[bool] = []

    def create() -> nn.Module:
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(6)]
        memory = mapped_weights._list_anonymous_memory()
        for layer in layers:
            address = layer.weight.data_ptr() + WIDTH * WIDTH * 2
            seen.append(not any(start <= address < end for start, end in memory))
        return nn.Sequential(*layers)

    build(create)
    assert seen == [False] * 2 + [True] * 4 or seen == [False] * 3 + [True] * 3


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float64"])
def test_a_cast_model_moves_too(precision: str, tmp_path: Path) -> None:
    code = f"from torch import nn\n\n\ndef build():\n    return nn.Sequential(*({LAYERS}))\n"
    (tmp_path / "wide.py").write_text(code)
    spec = make_contract("", manifest="m.toml", source="wide.py:build", precision=precision)
    model = load_model(spec, tmp_path)
    assert isinstance(model, nn.Module)
    torch.manual_seed(spec.seed)
    expected = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(10)))
    expected.to(getattr(torch, precision))
    # A bias of float64 may contain a whole page.
    assert {f"{index}.weight" for index in range(10)} <= set(list_mapped(model))
    assert digest_weights(model) == digest_weights(expected)


LAYERS = f"nn.Linear({WIDTH}, {WIDTH}) for _ in range(10)"


def test_a_full_disk_leaves_the_weights_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    expected = digest_weights(Stack())

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    model = build(Stack)
    assert list_mapped(model) == []
    assert digest_weights(model) == expected


def test_a_mapped_file_of_the_user_stays(tmp_path: Path) -> None:
    values = torch.randn(5 * WIDTH * WIDTH)
    path = tmp_path / "weights.bin"
    path.write_bytes(values.numpy().tobytes())
    mapped = torch.from_file(str(path), shared=True, size=values.numel())

    def create() -> nn.Module:
        model = nn.Module()
        model.register_parameter("weight", nn.Parameter(mapped))
        return model

    model = build(create)
    with torch.no_grad():
        model.get_parameter("weight")[0] = 42.0
    assert torch.from_file(str(path), shared=False, size=1)[0] == 42.0


def test_weights_without_memory_are_left_alone() -> None:
    def create() -> nn.Module:
        model = Stack()
        with FakeTensorMode():
            model.fake = nn.Linear(WIDTH, WIDTH)
        model.meta = nn.Linear(WIDTH, WIDTH, device="meta")
        model.lazy = nn.LazyLinear(WIDTH)
        return model

    model = build(create)
    assert set(list_mapped(model.layers)) == {f"{index}.weight" for index in range(5)}


# The last one: weights of later models may begin in the memory that it frees.
def test_the_memory_of_a_freed_weight_belongs_to_its_next_value() -> None:
    others: list[torch.Tensor] = []

    def create() -> nn.Module:
        model = Stack()
        lost = nn.Linear(WIDTH, WIDTH)
        lost.weight.untyped_storage().resize_(0)
        # The allocator may use the address of the freed weight for these.
        others.extend(torch.full((WIDTH, WIDTH), 9.0) for _ in range(8))
        return model

    def list_shared() -> set[int]:
        return {each.start for each in list_file_mappings() if each.mode == "rw-s"}

    def measure() -> tuple[int, bool, bool]:
        shared = list_shared()  # by libraries that earlier tests loaded
        count = len(list_mapped(build(create)))
        return count, all(bool((x == 9).all()) for x in others), list_shared() <= shared

    # In a fork: weights of later tests would get the memory, whose pages stay those of a file.
    assert compute_in_fork(measure) == (6, True, True)


class Cast(nn.Module):
    """Casts its input to the dtype of a weight, and uses a weight outside its module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.alias = self.linear.weight
        self.register_buffer("scale", torch.rand(64, 64))
        self.register_buffer("steps", torch.arange(4096))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear((x / 3).to(self.linear.weight.dtype))
        return functional.linear(y, self.alias) @ self.scale + self.steps[-1]


class Tied(nn.Module):
    """Uses one table for its input and its output, and one module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)
        block = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())
        self.blocks = nn.ModuleList([block, block])
        self.head = nn.Linear(64, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x.abs().long())
        for block in self.blocks:
            y = block(y)
        return self.head(y)


class Recurrent(nn.Module):
    """Has layers that compare dtypes: a wrapper that casts weights cannot run them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 64, 5, padding=2)
        self.norm = nn.BatchNorm1d(64)
        self.lstm = nn.LSTM(64, 64, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.norm(self.conv(x)).mT)[0]


@pytest.mark.parametrize("build", [Cast, Tied, Recurrent])
def test_a_copy_in_a_file_has_the_outputs_of_a_copy_in_memory(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model = build().eval()
    x = torch.randn(2, 3, 64)
    before = model(x)
    wide, expected = copy_in_float64(model), copy.deepcopy(model).double()
    with torch.no_grad():
        assert torch.equal(wide(x.double()), expected(x.double()))
        # The same writes reach the same weights.
        for each in (wide, expected):
            next(each.parameters()).mul_(2)
        assert torch.equal(wide(x.double()), expected(x.double()))
    assert torch.equal(model(x), before)
    shared = [each for each in mapped_weights._read_mappings() if each.mode == "rw-s"]
    for (name, weight), other in zip(wide.named_parameters(), expected.parameters(), strict=True):
        assert (weight.dtype, weight.stride()) == (other.dtype, other.stride())
        address = weight.data_ptr()
        is_in_file = any(each.start <= address < each.end for each in shared)
        assert is_in_file is (model.get_parameter(name).nbytes >= mapped_weights._LARGE_STORAGE)


def test_only_a_copy_knows_the_dtype_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_run, "_COPIED", 0)
    model, x = Cast(), torch.randn(2, 64)
    wide, reason = build_float64_model(model)
    assert (type(wide), reason) == (Cast, "")
    assert describe_float64_run(model, wide) == "as a copy, with its weights in a temporary file"

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    wrapper, reason = build_float64_model(model)
    assert (type(wrapper), reason) == (Float64Wrapper, "")
    assert describe_float64_run(model, wrapper).startswith("operator by operator")
    assert wide is not None
    assert wrapper is not None
    # The wrapper shows float32 weights to the code of the model, which rounds its input to them.
    assert not torch.equal(wide(x.double()), wrapper(x.double()))


class Closed(Cast):
    """Refuses copies, as a model with an open file does."""

    def __deepcopy__(self, memo: object) -> Closed:
        raise TypeError("cannot be copied")


def test_a_large_model_that_cannot_be_copied_runs_by_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none, reason = build_float64_model(Closed())
    assert none is None
    assert "cannot be copied" in reason
    monkeypatch.setattr(eager_run, "_COPIED", 0)
    wrapper, reason = build_float64_model(Closed())
    assert (type(wrapper), reason) == (Float64Wrapper, "")


def test_a_large_program_has_the_float64_outputs_of_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(2, 64)
    model = convert_to_module(torch.export.export(Cast().eval(), (x,)))
    small, _ = build_float64_model(model)
    monkeypatch.setattr(eager_run, "_COPIED", 0)
    large, _ = build_float64_model(model)
    assert small is not None
    assert large is not None
    assert torch.equal(large(x.double()), small(x.double()))
    assert large(x.double()).dtype is torch.float64


def test_small_models_have_no_note_about_float64() -> None:
    assert describe_float64_run(Cast(), Cast().double()) == ""
