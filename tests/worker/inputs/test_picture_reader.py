"""Pictures become tensors with channels first; unreadable ones have a message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from exporter.manifest.syntax.values import IMAGE_SUFFIXES
from exporter.worker.inputs.data_files import read_picture
from exporter.worker.process.failure import Failure
from tests.worker.contracts import make_fill

image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")

RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Contain a picture with a red left half and a white right half, 8 x 4."""
    picture = image.new("RGB", (8, 4), RED)
    picture.paste(WHITE, (4, 0, 8, 4))
    picture.save(tmp_path / "x.png")
    (tmp_path / "text.png").write_text("no picture")
    picture.save(tmp_path / "program.png", format="EPS")
    image.effect_noise((64, 64), 100).save(tmp_path / "cut.png")
    content = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    return tmp_path


def read(folder: Path, name: str, mode: str, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    return read_picture(folder, make_fill(kind="image", file=name, mode=mode), shape, dtype)


def test_colors_are_channels_from_0_to_1(folder: Path) -> None:
    tensor = read(folder, "x.png", "RGB", 2, 3, 4, 8, dtype=torch.float32)
    assert tensor.shape == (2, 3, 4, 8)
    assert tensor.dtype is torch.float32
    assert tensor[1, :, 0, 0].tolist() == [1, 0, 0]
    assert tensor[0, :, 3, 7].tolist() == [1, 1, 1]


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_each_format_of_the_manifest_is_read(suffix: str, folder: Path) -> None:
    image.new("RGB", (4, 4), WHITE).save(folder / f"x{suffix}")
    assert bool((read(folder, f"x{suffix}", "RGB", 3, 4, 4, dtype=torch.uint8) == 255).all())


@pytest.mark.parametrize("mode", ["L", "Y"])
def test_gray_has_one_channel_of_integers(mode: str, folder: Path) -> None:
    tensor = read(folder, "x.png", mode, 1, 1, 4, 8, dtype=torch.uint8)
    assert tensor[0, 0, 0].tolist() == [76] * 4 + [255] * 4
    flat = read(folder, "x.png", mode, 4, 8, dtype=torch.uint8)
    assert torch.equal(flat, tensor[0, 0])


def test_the_picture_is_scaled_to_other_sizes(folder: Path) -> None:
    tensor = read(folder, "x.png", "RGB", 3, 8, 16, dtype=torch.float32)
    assert tensor.shape == (3, 8, 16)
    assert tensor[:, 0, 0].tolist() == [1, 0, 0]
    assert 0 <= float(tensor.min()) <= float(tensor.max()) <= 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.png", r"text\.png: the file is no picture in a format that `image` accepts"),
        # Pillow would start Ghostscript.
        ("program.png", r"program\.png: the file is no picture in a format that `image` accepts"),
        ("cut.png", r"cut\.png: the picture cannot be read"),
    ],
)
def test_an_unreadable_picture_is_a_failure(name: str, message: str, folder: Path) -> None:
    with pytest.raises(Failure, match=message):
        read(folder, name, "RGB", 3, 4, 4, dtype=torch.float32)


def test_without_pillow_the_message_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Failure, match=r"needs the package Pillow; install it: pip install pillow"):
        read(folder, "x.png", "RGB", 3, 4, 4, dtype=torch.float32)
