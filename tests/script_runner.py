"""Run reproducers in forks of one process, which imports torch once and cannot import this package.

As a program, it reads the path of a script from each line of stdin and writes its exit code to a
line of stdout, after `output.txt` next to the script has its output.
"""

from __future__ import annotations

import atexit
import importlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

#: The packages that each script would import for seconds.
_PACKAGES = ("onnx", "onnxruntime", "onnxscript", "torch", "torch.onnx", "torch.export")


def run_script(script: Path) -> subprocess.CompletedProcess[str]:
    """Run a script without arguments; its stdout has stderr, too."""
    process = _start_server()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{script}\n")
    process.stdin.flush()
    code = int(process.stdout.readline())
    output = (script.parent / "output.txt").read_text(encoding="utf-8", errors="replace")
    return subprocess.CompletedProcess([str(script)], code, output, "")


@cache
def _start_server() -> subprocess.Popen[str]:
    folder = Path(tempfile.mkdtemp(prefix="scripts-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "exporter.py").write_text("raise ImportError('not here')\n")
    process = subprocess.Popen(
        # A copy, because modules next to a program hide others with the same name.
        [sys.executable, shutil.copy(__file__, folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    return process


def _serve() -> None:
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
    _serve()
