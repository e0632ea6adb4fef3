"""Measure the usual test of a file on the traps: `python -m benchmarks.plain`.

The usual test calls `onnx.checker`, runs the file once on the inputs of the export, and compares
the outputs with PyTorch's. A trap counts if its file is wrong (`fail`) and exists.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from exporter.records.record import Status
from tests.traps.prove import make_record
from tests.traps.table import ALL
from tests.traps.trap import Trap

#: The relative and absolute tolerance of the tutorial of torch.onnx.
RTOL, ATOL = 1e-3, 1e-5


def is_valid(path: Path) -> bool:
    """Return whether `onnx.checker` accepts the file."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception:  # noqa: BLE001 - each kind of error is a file that is found
        return False
    return True


def equals_once(path: Path, names: list[str]) -> bool:
    """Return whether one run on the inputs of the export gives PyTorch's outputs."""
    data = path.parent / "test_data_set_0"
    try:
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        inputs = {name: _read(data / f"input_{i}.pb") for i, name in enumerate(names)}
        for i, output in enumerate(session.run(None, inputs)):
            expected = _read(data / f"output_{i}.pb")
            np.testing.assert_allclose(output, expected, rtol=RTOL, atol=ATOL)
    except Exception:  # noqa: BLE001 - a run that raises has found the file, too
        return False
    return True


def _read(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load_tensor(path))


def find(trap: Trap, folder: Path) -> str:
    """Return the first step that finds the wrong file of a trap, or "" if it has none."""
    if make_record(trap, folder / "trap").status is not Status.FAIL:
        return ""
    files = sorted(folder.rglob(f"{trap.opset}.onnx"))
    if not files or not (files[0].parent / "test_data_set_0").is_dir():
        return ""
    if not is_valid(files[0]):
        return "onnx.checker"
    names = [each.name for each in trap.spec.inputs]
    return "the checks" if equals_once(files[0], names) else "one comparison"


def main() -> None:
    """Print the number of wrong files that each step finds first."""
    counts = dict.fromkeys(("onnx.checker", "one comparison", "the checks"), 0)
    for trap in ALL:
        if trap.is_sound or trap.verdict.status is not Status.FAIL or trap.package or trap.gap:
            continue
        with TemporaryDirectory() as folder:
            found = find(trap, Path(folder))
        if found:
            counts[found] += 1
            print(f"{found}: {trap.name}", flush=True)
    print(f"{sum(counts.values())} wrong files:", *(f"{n} by {step}" for step, n in counts.items()))


if __name__ == "__main__":
    main()
