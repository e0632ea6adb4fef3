"""Operators of C++ extensions: the example of the documentation, compiled by the row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.features.feature import Feature, Section
from tests.integration.project import ROOT

_EXAMPLE = ROOT / "docs/examples/manifests/custom_operator"


def _compile(folder: Path) -> None:
    shutil.copytree(
        _EXAMPLE, folder, ignore=shutil.ignore_patterns("*.toml", "build"), dirs_exist_ok=True
    )
    # ninja is a program of the environment, even if the environment is not activated.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = [sys.executable, str(folder / "compile_library.py")]
    subprocess.run(command, env={**os.environ, "PATH": path}, check=True, capture_output=True)


SECTION = Section(
    name="C++ extensions",
    rows=(
        Feature(
            name="an operator of a C++ extension",
            api="TORCH_LIBRARY, torch.ops.load_library, register_custom_op_symbolic",
            model="",
            lines="""
custom_ops = [
  { name = "tutorial_cpp::snake", symbolic = "snake.py:symbolic_snake" },
  { name = "tutorial_cpp.snake.default", translation = "snake.py:onnx_snake" },
]
""",
            rest='source = "library.py:Network"\noutputs = [{ name = "y", shape = ["batch", 3] }]',
            prepare=_compile,
            package="ninja",
            program="g++",
            by_command=True,
            facts={
                "its attributes are constants of both files": lambda proof: all(
                    {"Sin", "Div"} <= set(proof.operators(opset)) for opset in (13, 18)
                )
            },
            note="The model's file loads the library; the record depends on it like on any file.",
        ),
    ),
)
