"""Compile `snake.cpp` to `build/tutorial_snake.so`; needs g++ or clang, and ninja."""

from __future__ import annotations

from pathlib import Path

from torch.utils.cpp_extension import load

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    (FOLDER / "build").mkdir(exist_ok=True)
    load(
        name="tutorial_snake",
        sources=[str(FOLDER / "snake.cpp")],
        extra_cflags=["-O0"],  # compiles in a third of the time
        build_directory=str(FOLDER / "build"),
        is_python_module=False,
    )
