"""Write the address of this repository into all texts that name it: `python .ci/address.py`.

`Repository` of `[project.urls]` in pyproject.toml is the only place to edit. While the account
there is OWNER, the texts ask the reader to replace it; a real account removes these sentences.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("README.md", "CONTRIBUTING.md", "pyproject.toml", ".github/CODEOWNERS")
UNKNOWN = "OWNER"
_PLACES = re.compile(
    r"(github(?:usercontent)?\.com/|uses: |^\* @)[\w.-]+(?=/onnx-exporter-matrix|$)", re.MULTILINE
)
_REQUESTS = re.compile(r",? and replace OWNER[^.,]*| ?Replace OWNER[^.]*\.")


def list_files() -> list[Path]:
    """Return the files whose texts name the repository."""
    return [*(ROOT / name for name in FILES), *sorted((ROOT / "docs").glob("*.md"))]


def read_owner() -> str:
    """Return the account of the address in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Repository"]).rsplit("/", 2)[1]


def write_owner(text: str, owner: str) -> str:
    """Return the text with the account in each address, without requests to replace it."""
    text = _PLACES.sub(lambda match: match[1] + owner, text)
    return text if owner == UNKNOWN else _REQUESTS.sub("", text)


if __name__ == "__main__":
    owner = read_owner()
    for path in list_files():
        before = path.read_text("utf-8")
        after = write_owner(before, owner)
        if after != before:
            path.write_text(after, "utf-8")
