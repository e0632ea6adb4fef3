"""The table of ONNX Runtime's releases agrees with the wheels of these releases.

It installs up to 20 releases, so it runs on request only: the session `releases`.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import product
from pathlib import Path

import onnx
import pytest
from onnx import parser

from exporter.manifest.syntax.releases import (
    RELEASES,
    ReleaseLimits,
    find_first_release,
    find_limits,
    format_release,
)
from exporter.pipeline.device_environments import InstallationFailure, install_environment
from exporter.virtual_environments import EnvironmentDefinition

#: The first release with a wheel for Python 3.11, and the last one to install.
FIRST, LAST = (1, 15), (1, 32)
MINORS = [(1, minor) for minor in range(FIRST[1], LAST[1] + 1)]
#: Releases up to this one were built for numpy 1.
LAST_WITH_NUMPY_1 = (1, 18)
TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
#: Prints whether the release loads each file of the folder.
LOADER = """
import json
import sys
from pathlib import Path

import onnxruntime

loaded = {}
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    try:
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:  # pybind11 classes without a common base
        loaded[path.stem] = False
    else:
        loaded[path.stem] = True
print(json.dumps(loaded))
"""


def load_around(limits: ReleaseLimits, python: Path, folder: Path) -> dict[tuple[int, int], bool]:
    """Return whether the release loads files at its limits and one beyond them."""
    pairs = list(
        product(
            (limits.opset, limits.opset + 1),
            (limits.ir_version, limits.ir_version + 1),
        )
    )
    for opset, ir_version in pairs:
        model = parser.parse_model(TEXT)
        model.opset_import[0].version, model.ir_version = opset, ir_version
        (folder / f"{opset}-{ir_version}.onnx").write_bytes(model.SerializeToString())
    # Without it, a release also loads opsets that it does not know.
    environment = {**os.environ, "ALLOW_RELEASED_ONNX_OPSET_ONLY": "1", "PYTHONPATH": ""}
    command = [str(python), "-c", LOADER, str(folder)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    loaded = json.loads(process.stdout)
    return {(opset, version): loaded[f"{opset}-{version}"] for opset, version in pairs}


@pytest.mark.skipif(os.environ.get("RELEASES") != "all", reason="see the session `releases`")
@pytest.mark.parametrize("release", MINORS, ids=format_release)
def test_each_release_loads_what_the_table_contains(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, release: tuple[int, int]
) -> None:
    numpy = ("numpy<2",) if release <= LAST_WITH_NUMPY_1 else ()
    requirements = (f"onnxruntime=={format_release(release)}.*", *numpy)
    base = tmp_path_factory.getbasetemp() / "environments"
    try:
        installed = install_environment(EnvironmentDefinition(requirements=requirements), base)
    except InstallationFailure as failure:
        pytest.skip(f"no wheel: {str(failure).splitlines()[-1]}")
    limits = find_limits(release)
    assert limits is not None
    for (opset, ir_version), is_loaded in load_around(limits, installed.python, tmp_path).items():
        first = find_first_release(opset, ir_version)
        is_expected = first is not None and first <= release
        assert is_loaded == is_expected, f"opset {opset}, IR version {ir_version}"


def test_the_files_are_valid_at_the_limits() -> None:
    newest = onnx.defs.onnx_opset_version()
    known = [limits for limits in RELEASES if limits.opset <= newest]
    for limits in known[-3:]:
        model = parser.parse_model(TEXT)
        model.opset_import[0].version = limits.opset
        onnx.checker.check_model(model)
