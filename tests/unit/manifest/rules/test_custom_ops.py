"""Custom operators with libraries, which the corpus does not contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from tests.unit.manifest.projects import ENTRY, load_model, make_project


def _library(root: Path, text: str, file: str = "") -> str:
    if file:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"\x7fELF")
    keys = f'custom_ops = [{{ name = "custom::Foo", ort_library = "{text}" }}]\n'
    (op,) = load_model(root, keys).custom_ops
    return op.ort_library


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("libfoo.so", "manifests/libfoo.so"),
        ("../build/libfoo.so", "build/libfoo.so"),
        ("models/vision.py:make", ""),
        ("json:loads", ""),
    ],
)
def test_a_library_of_the_project_or_a_function(tmp_path: Path, text: str, file: str) -> None:
    assert _library(tmp_path, text, file) == text


def test_a_link_to_a_library_outside_the_project_is_rejected(tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.so"
    outside.write_bytes(b"\x7fELF")
    root = tmp_path / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "manifests" / "libfoo.so").symlink_to(outside)
    with pytest.raises(ExporterError, match=r'"libfoo\.so" is outside the project'):
        _library(root, "libfoo.so")


def test_a_folder_is_not_a_library(tmp_path: Path) -> None:
    (tmp_path / "manifests" / "libfoo.so").mkdir(parents=True)
    with pytest.raises(ExporterError, match="does not exist"):
        _library(tmp_path, "libfoo.so")


def test_files_of_a_parent_are_relative_to_the_parent(tmp_path: Path) -> None:
    keys = (
        'custom_ops = [{ name = "custom::Foo", ort_library = "libfoo.so", '
        'reference = "models/vision.py:make" }]\n'
    )
    files = {
        "manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}{keys}",
        "manifests/deep/child.toml": "format = 1\n[models.child]\nextends = 'net'\n",
        "manifests/libfoo.so": "",
    }
    (op,) = load_project(make_project(tmp_path, files)).find_model("child").custom_ops
    assert (op.ort_library, op.reference) == ("../libfoo.so", "../models/vision.py:make")


@pytest.mark.parametrize(
    ("opsets", "entry"),
    [
        ('"9..21"', '{ name = "a::b", symbolic = "models/vision.py:make", opset = 17 }'),
        ('"9..21"', '{ name = "a.b.default", translation = "models/vision.py:make", opset = 21 }'),
        ('"9..21"', '{ name = "prim::PythonOp", symbolic = "models/vision.py:make" }'),
        ('"18..20"', '{ name = "a.b.Tensor_out", translation = "models/vision.py:make" }'),
    ],
)
def test_valid_names_and_opsets(tmp_path: Path, opsets: str, entry: str) -> None:
    text = ENTRY.replace('"9..21"', opsets)
    assert load_model(tmp_path, f"custom_ops = [{entry}]\n", text).custom_ops


def test_one_operator_has_an_entry_for_each_exporter_and_opset(tmp_path: Path) -> None:
    function = '"models/vision.py:make"'
    entries = [
        f'{{ name = "a::b", symbolic = {function} }}',
        f'{{ name = "a::b", symbolic = {function}, opset = 11 }}',
        f'{{ name = "a.b.default", translation = {function} }}',
    ]
    keys = f"custom_ops = [{', '.join(entries)}]\n"
    assert [op.opset for op in load_model(tmp_path, keys).custom_ops] == [1, 11, 1]


def test_an_override_may_assign_opsets_to_the_other_exporter(tmp_path: Path) -> None:
    keys = """custom_ops = [{ name = "a.b.default", translation = "models/vision.py:make" }]
[[models.net.overrides]]
opset = 17
exporter = "dynamo"
"""
    text = ENTRY.replace('"9..21"', "[13, 17]")
    assert load_model(tmp_path, keys, text).custom_ops
    with pytest.raises(ExporterError, match="TorchScript exports all opsets of this model"):
        load_model(tmp_path / "other", keys.replace("dynamo", "torchscript"), text)
