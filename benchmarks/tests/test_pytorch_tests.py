"""An entry of PyTorch's own tests has outputs that a manifest can express."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from benchmarks.pytorch_tests.__main__ import Unsuitable, _make_entry
from benchmarks.pytorch_tests.cases import Case, list_cases


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Quantized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)


def list_lines(model: nn.Module) -> list[str]:
    options = {"input_names": ["x"], "dynamic_axes": {"x": [0]}, "input_kwargs": None}
    call = (torch.arange(6.0).reshape(2, 3),)
    return list(_make_entry("net", Case(model=model, calls=(call,), options=options)))


def test_a_call_has_its_dynamic_axes() -> None:
    lines = list_lines(Scaled())
    assert '  { name = "o0", shape = ["y0_0", 3], dtype = "float32" },' in lines


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_a_quantized_output_has_no_entry() -> None:
    with pytest.raises(Unsuitable, match="dtype quint8"):
        list_lines(Quantized())


def test_a_package_that_the_tests_import_has_no_stand_in_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_tests.py").write_text(
        "import onnx_test_common\n"
        "import parameterized\n"
        "import torch\n"
        "import torch_onnx\n"
        "class Tests(onnx_test_common._TestONNXRuntime):\n"
        "    def test_one(self):\n"
        "        assert torch_onnx.ops\n"
        "        self.run_test(torch.nn.ReLU(), torch.ones(2))\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("onnx_test_common", "parameterized"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert [name for name, _, _ in list_cases(tmp_path / "some_tests.py", ["*"])] == ["test_one"]
    assert find_spec("torch_onnx") is None
