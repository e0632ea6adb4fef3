"""The samples of a caller: files of the project, or what a function of the project returns.

PyTorch's program and the caller receive the same objects. The function is called once, in the
worker, because its module may import PyTorch; a pickle brings its objects to the caller.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from pathlib import Path

from exporter.core.import_object import load_attribute
from exporter.manifest import Caller


def list_samples(caller: Caller, folder: Path) -> list[tuple[str, object]]:
    """Return the samples with their names, files in the order of their paths.

    `folder`: The folder of the manifest.

    Raises:
        TypeError: If the function returns no samples.
    """
    if ".py:" not in caller.samples:
        paths = sorted(path for path in folder.glob(caller.samples) if path.is_file())
        return [(Path(os.path.relpath(path, folder)).as_posix(), str(path)) for path in paths]
    samples = load_attribute(caller.samples, folder)()
    if not isinstance(samples, Iterable):
        raise TypeError(f"{caller.samples} returns a {type(samples).__name__}, expected samples")
    return [(f"sample {number}", sample) for number, sample in enumerate(samples, 1)]


def write_samples(path: Path, samples: list[tuple[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(samples))


def read_samples(path: Path) -> list[tuple[str, object]]:
    """Return the samples that the worker wrote for its own child process."""
    samples: list[tuple[str, object]] = pickle.loads(  # noqa: S301 - written by this job
        path.read_bytes()
    )
    return samples
