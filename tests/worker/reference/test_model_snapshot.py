"""A snapshot restores everything that an export may change in a model."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType

import torch

from exporter.worker.reference.python_state import ModelSnapshot


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.size = 3
        self.table = {"a": 1}
        self.sizes = [1, 2]
        self.same = self.sizes


def test_buffers_and_attributes_are_restored() -> None:
    model = torch.nn.Sequential(Holder())
    holder = model[0]
    assert isinstance(holder, Holder)
    snapshot, sizes = ModelSnapshot(model), holder.sizes
    holder.count += 1
    vars(holder)["size"] = torch.tensor(5)
    holder.table["b"] = 2
    holder.sizes.append(3)
    holder.same = []
    holder.eval()
    vars(holder)["_cached"] = torch.zeros(2)
    snapshot.restore()
    assert holder.count.item() == 0
    assert holder.size == 3
    assert holder.table == {"a": 1}
    assert holder.sizes == [1, 2]
    assert holder.sizes is sizes
    assert holder.same is sizes
    assert holder.training
    assert "_cached" not in vars(holder)


class Progress:
    def __init__(self) -> None:
        self.calls = 0
        self.rows: list[int] = []


def test_the_values_of_objects_and_closures_are_restored() -> None:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    model = Holder()
    progress = model.progress = Progress()
    model.count_calls = count
    model.objects = [progress]
    snapshot = ModelSnapshot(model)
    progress.calls = count()
    progress.rows.append(1)
    snapshot.restore()
    assert (calls, progress.calls, progress.rows) == (0, 0, [])
    assert model.progress is progress


def test_the_tables_of_python_are_not_touched() -> None:
    model, namespace = Holder(), dict[str, object]()
    exec("value = 1", namespace)  # it adds the table of builtins
    model.namespace, model.modules_of_python = namespace, sys.modules
    snapshot = ModelSnapshot(model)
    sys.modules["imported_later"] = ModuleType("imported_later")
    vars(builtins)["added_later"] = 1
    namespace["value"] = 2
    try:
        snapshot.restore()
        assert namespace["value"] == 1
        assert "imported_later" in sys.modules
        assert "added_later" in vars(builtins)
    finally:
        del sys.modules["imported_later"], vars(builtins)["added_later"]


class Proxy:
    """An object that fails as a proxy without a target does."""

    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            return type(self)
        raise RuntimeError(name)


def test_an_object_without_attributes_to_read_is_accepted() -> None:
    model = Holder()
    model.proxy = Proxy()
    ModelSnapshot(model).restore()


def test_the_attributes_of_a_module_itself_stay() -> None:
    model = Holder()
    snapshot = ModelSnapshot(model)
    model.register_buffer("late", torch.ones(1))
    snapshot.restore()
    assert "late" in dict(model.named_buffers())


def test_a_compiled_module_is_accepted() -> None:
    ModelSnapshot(torch.jit.script(torch.nn.Linear(2, 2))).restore()
    ModelSnapshot(torch.nn.Sequential(torch.jit.script(torch.nn.Linear(2, 2)))).restore()
