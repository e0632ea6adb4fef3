"""All files name one version, one lowest version of Python, and one address of the repository."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from exporter.commands.doctor.doctor import MINIMUM_PYTHON

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
VERSION = PROJECT["version"]
#: The lines of the section of a release, which a user reads.
LONGEST_SECTION = 60
#: The places that name a version: the file and the pattern of each one.
PLACES = {
    "docs/ci.md": r"(?:onnx-exporter-matrix@|rev: )v([\d.]+)",
    "docs/tutorial.md": r"onnx-exporter-matrix@v([\d.]+)",
    "tests/stability/interface.json": r'"version": "([\d.]+)"',
}
PYTHON = {
    "README.md": r"Python ([\d.]+) or newer",
    "pyproject.toml": r'(?:requires-python = ">=|python_version = ")([\d.]+)',
    ".ci/run": r"but Python ([\d.]+) and",
}


@pytest.mark.parametrize("places", [PLACES, PYTHON], ids=["version", "python"])
def test_each_place_names_the_same_version(places: dict[str, str]) -> None:
    expected = VERSION if places is PLACES else MINIMUM_PYTHON
    for file, pattern in places.items():
        named = re.findall(pattern, (ROOT / file).read_text("utf-8"))
        assert {*named} == {expected}, file


def test_the_classifiers_are_versions_of_python_that_ci_tests() -> None:
    ci = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    tested = {*re.findall(r'"(3\.\d+)"', ci)}
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named[0] == MINIMUM_PYTHON
    assert {*named} <= tested


def test_the_changelog_of_a_release_is_short_and_alone() -> None:
    """Unreleased entries precede it, until the next release folds them."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    released = [each for each in sections if not each.startswith("Unreleased\n")]
    assert released[0].startswith(f"[{VERSION}] - ")
    for section in released:
        assert len(section.splitlines()) <= LONGEST_SECTION


def test_the_snapshot_is_of_this_major_version() -> None:
    snapshot = json.loads((ROOT / "tests/stability/interface.json").read_text("utf-8"))
    assert snapshot["version"].split(".")[0] == VERSION.split(".")[0]


def test_each_text_has_the_address_of_the_project() -> None:
    address = runpy.run_path(str(ROOT / ".ci/address.py"))
    owner, write_owner = address["read_owner"](), address["write_owner"]
    named = 0
    for path in address["list_files"]():
        text = path.read_text("utf-8")
        assert write_owner(text, owner) == text, f"{path.name}: run `python .ci/address.py`"
        moved = write_owner(text, "acme")
        assert not re.search(r"\bOWNER\b", moved), path.name
        assert write_owner(moved, "acme") == moved
        named += moved.count("acme/onnx-exporter-matrix")
    assert named > 10


def test_a_request_to_replace_the_address_ends_with_a_real_one() -> None:
    write_owner = runpy.run_path(str(ROOT / ".ci/address.py"))["write_owner"]
    text = (
        "Run the commands above, and replace OWNER by your account.\n# Who. Replace OWNER by it.\n"
    )
    assert write_owner(text, "OWNER") == text
    assert write_owner(text, "acme") == "Run the commands above.\n# Who.\n"
    assert write_owner("- uses: OWNER/onnx-exporter-matrix@v1\n", "acme").startswith(
        "- uses: acme/"
    )
    assert write_owner("* @OWNER\n", "acme") == "* @acme\n"
    assert write_owner("- uses: OWNER/other@v1\n", "acme") == "- uses: OWNER/other@v1\n"
