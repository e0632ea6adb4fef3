"""Write the snapshot of the stable interfaces: `python -m tests.stability`.

`--replace` also writes it if the new interface breaks a user of the old one: before the release of
a major version. `--project` writes the files of this version into
`tests/stability/VERSION.zip`; later versions read them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.stability.interface import (
    SNAPSHOT,
    Interface,
    list_changes,
    list_incompatible,
    read_interface,
)

#: The kinds of files that a later version has to read.
_KEPT = re.compile(r"pyproject|manifests/net|build/results\.json|reports/baseline|published|store")
_MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()
"""
_MANIFEST = """\
format = 1

[models.net]
source = "net.py:Net"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 2] }]
opsets = [18]
axes.batch = { max = 64 }
"""
_SETTINGS = """\
[tool.exporter]
manifests = "manifests"
store = "store"

[tool.exporter.gate]
block = ["newly_skipped"]
"""


def write_project(folder: Path, archive: Path) -> None:
    """Pack a project with a baseline, results, a published folder and a store."""
    (folder / "manifests").mkdir()
    for name, text in (
        ("pyproject.toml", _SETTINGS),
        ("manifests/net.py", _MODEL),
        ("manifests/net.toml", _MANIFEST),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    published = str(folder / "published")
    for arguments in (["export"], ["baseline"], ["publish", "net/18", published, "--initial"]):
        command = [sys.executable, "-m", "exporter", *arguments, "--root", str(folder)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and _KEPT.match(name):
                packed.writestr(zipfile.ZipInfo(name), path.read_bytes())


def main(arguments: list[str]) -> int:
    """Write the snapshot, unless it would hide an incompatible change."""
    current = read_interface()
    released = Interface.from_json(SNAPSHOT.read_text("utf-8")) if SNAPSHOT.exists() else current
    if "--project" in arguments:
        major, minor, _ = current.version.split(".")
        with tempfile.TemporaryDirectory() as folder:
            write_project(Path(folder), SNAPSHOT.with_name(f"{major}.{minor}.zip"))
    if (broken := list_incompatible(released, current)) and "--replace" not in arguments:
        broken.append(f"not written: {len(broken)} changes break users; raise the major version")
        sys.stdout.write("\n".join([*broken, ""]))
        return 1
    SNAPSHOT.write_text(current.to_json(), encoding="utf-8")
    sys.stdout.write("\n".join([*list_changes(released, current), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
