"""Small packages that tests install without an index, and a model that uses them."""

from __future__ import annotations

import zipfile
from pathlib import Path

#: The code of a model after `MODELS`: it is the model `Good` if the package is not installed.
SCALED_MODEL = """

try:
    import scale_of_test as package
except ImportError:
    package = None


class Scaled(Good):
    def forward(self, x):
        if package is None:
            return super().forward(x)
        return super().forward(x) * package.read_scale()
"""


def write_wheel(folder: Path, version: str, code: str, *, python: str = "py3") -> Path:
    """Write the package `scale-of-test`.

    Args:
        folder: The folder of the wheel.
        version: The version of the package.
        code: The body of its function `read_scale`.
        python: The tag of the Python that can install it.
    """
    path = folder / f"scale_of_test-{version}-{python}-none-any.whl"
    info = f"scale_of_test-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scale_of_test.py", f"def read_scale():\n    {code}\n")
        metadata = f"Metadata-Version: 2.1\nName: scale-of-test\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {python}-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    return path
