"""The model's line in the traces of torch."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch

from exporter.worker.process.error_origin import find_source_line

LINEAR = torch.nn.modules.linear.__file__
PACKAGES = Path(sysconfig.get_path("purelib"))


DYNAMO = f"""File "{{root}}/nets.py", line 3, in forward
    y = self.block(x)
  File "{{root}}/sub/block.py", line 8, in forward
    return self.linear(x)
  File "{LINEAR}", line 134, in forward
    return F.linear(x)"""
TORCHSCRIPT = f"""{LINEAR}(134): forward
{{root}}/sub/block.py(8): forward
{{root}}/nets.py(3): forward
"""
SCRIPTED = "{root}/sub/block.py:8:15"


@pytest.mark.parametrize("trace", [DYNAMO, TORCHSCRIPT, SCRIPTED])
def test_innermost_line_of_the_project_is_found(trace: str, tmp_path: Path) -> None:
    assert find_source_line(trace.format(root=tmp_path), tmp_path) == "sub/block.py:8"


@pytest.mark.parametrize(
    "trace",
    ["", f'File "{LINEAR}", line 134, in forward', f"{LINEAR}(134): forward", "no trace at all"],
)
def test_trace_without_a_line_of_the_project_gives_none(trace: str, tmp_path: Path) -> None:
    assert find_source_line(trace, tmp_path) == ""


WRAPPER = 'File "{root}/nets.py", line 3, in forward\n    return self.library(x)\n'


def test_line_of_a_library_is_found_inside_the_wrapper_of_the_project(tmp_path: Path) -> None:
    library = PACKAGES / "library" / "models.py"
    inner = f'  File "{library}", line 78, in forward\n    return F.relu(x)\n'
    kernel = f'  File "{LINEAR}", line 134, in forward\n    return F.linear(x)'
    trace = WRAPPER.format(root=tmp_path) + inner + kernel
    assert find_source_line(trace, tmp_path) == "library/models.py:78"


@pytest.mark.parametrize("package", ["onnxscript", "torch", "numpy", "sympy"])
def test_line_of_a_tool_is_no_line_of_the_model(package: str, tmp_path: Path) -> None:
    inner = f'  File "{PACKAGES / package / "models.py"}", line 78, in forward\n'
    trace = WRAPPER.format(root=tmp_path) + inner
    assert find_source_line(trace, tmp_path) == "nets.py:3"
