"""The caches of drivers and compilers are no dependencies, and weights in the user's are.

Without a GPU, models stand for the driver: they read and write an index at each start, and take
a kernel of another process or rename a new one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.project import format_entry, read_cells, run_exporter, write_project
from tests.tracer_support import needs_tracer

pytestmark = needs_tracer

#: Where a tool keeps its kernels without its variable.
FOLDERS = {
    "CUDA_CACHE_PATH": ".nv/ComputeCache",
    "PYTORCH_KERNEL_CACHE_PATH": ".cache/torch/kernels",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": ".triton/cache",
}

MODELS = f"""
import ctypes
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

FOLDERS = {FOLDERS}
LIBC = ctypes.CDLL(None)
LIBC.getenv.restype = ctypes.c_char_p


class Scale(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Driver(Scale):
    '''Uses caches by native code.'''

    def __init__(self):
        super().__init__()
        for variable, name in FOLDERS.items():
            folder = LIBC.getenv(variable.encode()) or os.fsencode(Path.home() / name)
            os.makedirs(folder, exist_ok=True)
            index = LIBC.open(folder + b"/index", os.O_RDWR | os.O_CREAT, 0o600)
            while LIBC.read(index, ctypes.create_string_buffer(1), 1):
                pass
            LIBC.write(index, b"+", 1)
            LIBC.close(index)
            kernel, temporary = (folder + end for end in (b"/abs_kernel", b"/tmp%d" % os.getpid()))
            if LIBC.open(kernel, os.O_RDONLY) < 0:
                LIBC.close(LIBC.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600))
                LIBC.rename(temporary, kernel)
                LIBC.close(LIBC.open(kernel, os.O_RDONLY))


class Compiler(Scale):
    '''Uses caches by Python.'''

    def __init__(self):
        super().__init__()
        for variable, name in FOLDERS.items():
            folder = Path(os.environ.get(variable, Path.home() / name))
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "table.json").open("a+") as table:
                table.seek(0)
                table.write("+" * len(table.read(1)) + "+")


class Weights(Scale):
    '''Has weights in folders of the user with such names.'''

    def __init__(self):
        home = Path.home()
        factor = torch.load(home / ".nv/ComputeCache/weight.pt")
        factor *= float(np.load(home / ".cache/torch/kernels/weight.npy"))
        factor *= float((home / "torchinductor/weight.txt").read_text())
        native = LIBC.open(os.fsencode(home / ".triton/cache/weight.bin"), os.O_RDONLY)
        digit = ctypes.create_string_buffer(1)
        LIBC.read(native, digit, 1)
        LIBC.close(native)
        super().__init__(factor * float(digit.value))


class Remembers(Scale):
    '''Writes a file of its own in the first run, and reads it in later ones.'''

    def __init__(self):
        path = Path.home() / ".nv/ComputeCache/own.txt"
        if not path.exists():
            path.write_text("2")
        super().__init__(float(path.read_text()))
"""


def export(root: Path, *arguments: str) -> str:
    """Run a command with a home folder beside the project, and return its output.

    One of the user's caches has its place in a variable.
    """
    home = root.parent / "home"
    environment = {"HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(home / "torchinductor")}
    return run_exporter(root, *arguments, **environment, code=0).stdout


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an exported project with its home folder beside it."""
    import numpy as np
    import torch

    root = tmp_path_factory.mktemp("kernels") / "project"
    home = root.parent / "home"
    for name in FOLDERS.values():
        (home / name).mkdir(parents=True)
    torch.save(1.0, home / ".nv/ComputeCache/weight.pt")
    np.save(home / ".cache/torch/kernels/weight.npy", 1.0)
    (home / "torchinductor/weight.txt").write_text("1")
    (home / ".triton/cache/weight.bin").write_text("1")
    sources = {"first": "Driver", "second": "Driver", "third": "Compiler", "fourth": "Compiler"}
    sources |= {"weights": "Weights", "remembers": "Remembers"}
    entries = (
        format_entry(id, f"nets.py:{source}", y='"batch", 4') for id, source in sources.items()
    )
    manifest = "format = 1\n" + "".join(entries)
    settings = '[tool.exporter]\nstore = "off"\n'
    write_project(root, {"nets.py": MODELS, "nets.toml": manifest}, settings)
    export(root, "export")
    return root


def test_a_first_export_keeps_each_result(exported: Path) -> None:
    names = {cell.partition("/")[0] for cell in read_cells(exported)}
    assert names == {"first", "second", "third", "fourth", "weights", "remembers"}
    assert "0 cells to run, 6 to keep" in export(exported, "plan")


def test_the_caches_of_the_user_remain_as_they_are(exported: Path) -> None:
    home = exported.parent / "home"
    files = {path.name for path in home.rglob("*") if path.is_file()}
    assert files == {"weight.pt", "weight.npy", "weight.txt", "weight.bin", "own.txt"}
    # All jobs share the kernels: each of the two drivers is built twice at least.
    for name in FOLDERS:
        folder = exported / "build/.kernels" / name
        assert len((folder / "index").read_text()) >= 4
        assert (folder / "abs_kernel").is_file()


def test_kernels_survive_the_garbage_collection(exported: Path) -> None:
    export(exported, "gc")
    assert (exported / "build/.kernels/CUDA_CACHE_PATH/index").is_file()


@pytest.mark.parametrize(
    "name",
    [
        ".nv/ComputeCache/weight.pt",
        ".cache/torch/kernels/weight.npy",
        "torchinductor/weight.txt",
        ".triton/cache/weight.bin",
        ".nv/ComputeCache/own.txt",
    ],
)
def test_a_changed_file_in_such_a_folder_makes_its_model_stale(exported: Path, name: str) -> None:
    weight = exported.parent / "home" / name
    content = weight.read_bytes()
    weight.write_bytes(content + b"\0")
    plan = export(exported, "plan")
    assert "1 cell to run, 5 to keep" in plan
    assert f"../home/{name} changed" in plan
    weight.write_bytes(content)
    assert "0 cells to run" in export(exported, "plan")
