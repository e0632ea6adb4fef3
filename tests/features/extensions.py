"""Operators of C++ extensions, compiled by the row."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.features.feature import Feature, Section

#: Only the headers of the used operators, because all of them take a minute.
_SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

at::Tensor scaled_add(const at::Tensor& x, double alpha, int64_t offset) {
  return at::add(at::mul(x, alpha), offset);
}

TORCH_LIBRARY(extension, library) {
  library.def("scaled_add(Tensor x, float alpha, int offset) -> Tensor");
}
TORCH_LIBRARY_IMPL(extension, CPU, library) { library.impl("scaled_add", &scaled_add); }
"""
_MODEL = "extension.py:Extended"


def _compile(folder: Path) -> None:
    import torch

    package = Path(torch.__file__).parent
    source = folder / "extension.cpp"
    source.write_text(_SOURCE, encoding="utf-8")
    folders = (f"-I{package / 'include'}", f"-L{package / 'lib'}")
    # Another name than that of the model's file, which Python would take for the library.
    files = (str(source), "-o", str(folder / "libextension.so"))
    command = ("g++", "-O0", "-std=c++20", "-shared", "-fPIC", *folders, *files)
    subprocess.run((*command, "-ltorch_cpu", "-lc10"), check=True)


SECTION = Section(
    name="C++ extensions",
    rows=(
        Feature(
            name="an operator of a C++ extension",
            api="TORCH_LIBRARY, torch.ops.load_library, register_custom_op_symbolic",
            torch="1.4+",
            model=_MODEL,
            lines="""
custom_ops = [
  { name = "extension::scaled_add", symbolic = "extension.py:symbolic_scaled_add" },
  { name = "extension.scaled_add.default", translation = "extension.py:onnx_scaled_add" },
]
""",
            prepare=_compile,
            program="g++",
            by_command=True,
            facts={
                "its attributes are constants of both files": lambda proof: all(
                    {"Mul", "Add"} <= set(proof.operators(opset)) for opset in (13, 18)
                )
            },
            note="The model's file loads the library; the record depends on it like on any file.",
        ),
    ),
)
