"""Run reproducers in forks of one process, which imports torch only once.

Input: the path of a script on each line of stdin. Output: its exit code on a line of stdout, after
`output.txt` next to the script has its output.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import warnings
from pathlib import Path

#: The packages that each script would import for seconds.
_PACKAGES = ("onnx", "onnxruntime", "onnxscript", "torch", "torch.onnx", "torch.export")


def serve() -> None:
    """Run one script for each line."""
    warnings.simplefilter("ignore")
    for name in _PACKAGES:
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if not process:
            os._exit(_run(Path(line.strip())))
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(script: Path) -> int:
    """Return the exit code of a script; its output is in a file next to it."""
    with (script.parent / "output.txt").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        code = 0
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return code


if __name__ == "__main__":
    serve()
