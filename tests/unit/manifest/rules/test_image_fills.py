"""A picture as the values of an input: its file, its mode and the shape are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Fill, load_project
from tests.unit.manifest.projects import make_project

ENTRY = """
format = 1
[models.net]
source = "torch.nn:ReLU"
inputs = [{{ name = "x", shape = {shape}, dtype = "{dtype}", fill = {{ {fill} }} }}]
outputs = [{{ name = "y", shape = {shape}, dtype = "{dtype}" }}]
opsets = 18
"""
RGB, GRAY = '["batch", 3, "h", "w"]', '["batch", 1, "h", "w"]'


def write(root: Path, fill: str, shape: str = RGB, dtype: str = "float32") -> None:
    text = ENTRY.format(fill=fill, shape=shape, dtype=dtype)
    make_project(root, {"manifests/cat.jpg": "", "manifests/net.toml": text})


@pytest.mark.parametrize(
    ("fill", "shape", "mode"),
    [
        ('image = "cat.jpg"', RGB, "RGB"),
        ('image = "cat.jpg", mode = "RGB"', '[3, "h", "w"]', "RGB"),
        ('image = "cat.jpg", mode = "Y"', GRAY, "Y"),
        ('image = "cat.jpg", mode = "L"', '["h", "w"]', "L"),
    ],
)
def test_a_picture_is_a_fill_and_a_dependency(
    fill: str, shape: str, mode: str, tmp_path: Path
) -> None:
    write(tmp_path, fill, shape)
    (spec,) = load_project(tmp_path).models
    expected = Fill.model_validate({"kind": "image", "file": "cat.jpg", "mode": mode})
    assert spec.inputs[0].fill == expected
    assert "manifests/cat.jpg" in spec.data_files


@pytest.mark.parametrize(
    ("fill", "shape", "message"),
    [
        ('image = "cut.jpg"', RGB, "cut.jpg\" does not exist; did you mean 'cat.jpg'?"),
        ('image = "cat.npy"', RGB, "expected a file that ends in .bmp, .gif"),
        ('image = "cat.jpg", mode = "HSV"', RGB, "HSV"),
        ('mode = "RGB"', RGB, "needs exactly one of"),
        ('value = 1, mode = "RGB"', RGB, "`mode` needs `image`; remove `mode`"),
        ('image = "cat.jpg"', GRAY, 'mode "RGB" has 3 channels, not 1'),
        ('image = "cat.jpg", mode = "Y"', RGB, 'mode "L" or "Y" has one channel, not 3'),
        ('image = "cat.jpg"', '["h", "w"]', "a picture does not fit the shape"),
        ('image = "../../cat.jpg"', RGB, "is outside the project"),
    ],
)
def test_a_mistake_has_a_message(fill: str, shape: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, fill, shape)
    with pytest.raises(ExporterError) as error:
        load_project(tmp_path)
    assert message in str(error.value)


def test_a_truth_value_is_no_pixel(tmp_path: Path) -> None:
    write(tmp_path, 'image = "cat.jpg"', dtype="bool")
    with pytest.raises(ExporterError, match="'image' does not suit bool"):
        load_project(tmp_path)
