"""Data files that a model opens are dependencies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.worker.dependencies.opened_files import OpenedFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("data/words.json", "build/made.json", "code.py", "other.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_files_that_are_read_inside_are_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OpenedFiles(root, root / "build")
    (root / "other.json").read_text()
    with files.watch():
        json.loads((root / "data" / "words.json").read_text())
        monkeypatch.chdir(root / "data")
        Path("../data/words.json").read_bytes()
    (root / "other.json").read_text()
    assert files.list_names() == ("data/words.json",)


def test_code_written_files_and_external_files_are_ignored(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    external = tmp_path_factory.mktemp("external") / "x.json"
    external.write_text("{}")
    files = OpenedFiles(root, root / "build")
    with files.watch():
        for path in (root / "code.py", root / "build/made.json", external):
            path.read_text()
        (root / "new.json").write_text("{}")
        (root / "gone.json").write_text("{}")
        (root / "gone.json").read_text()
        (root / "gone.json").unlink()
    assert files.list_names() == ()


def test_two_may_watch_at_the_same_time(root: Path) -> None:
    one, other = OpenedFiles(root, root / "build"), OpenedFiles(root, root / "build")
    with one.watch():
        with other.watch():
            (root / "other.json").read_text()
        (root / "data/words.json").read_text()
    assert one.list_names() == ("data/words.json", "other.json")
    assert other.list_names() == ("other.json",)


def test_files_of_native_readers_are_listed(root: Path) -> None:
    import ctypes

    import safetensors.numpy
    import safetensors.torch
    import torch

    tensors = {"x": torch.ones(4)}
    safetensors.torch.save_file(tensors, root / "a.safetensors")
    safetensors.torch.save_file(tensors, root / "b.safetensors")
    safetensors.torch.save_file(tensors, root / "c.safetensors")
    torch.jit.script(torch.nn.ReLU()).save(str(root / "d.pt"))
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(4),)), root / "e.pt2")
    (root / "f.bin").write_bytes(bytes(16))
    (root / "g.so").write_bytes(b"no library")
    files = OpenedFiles(root, root / "build")
    with files.watch():
        assert safetensors.torch.load_file(root / "a.safetensors")["x"].tolist() == [1.0] * 4
        assert safetensors.numpy.load_file(root / "b.safetensors")["x"].tolist() == [1.0] * 4
        with safetensors.safe_open(str(root / "c.safetensors"), framework="pt") as opened:
            assert list(opened.keys()) == ["x"]
        torch.jit.load(str(root / "d.pt"))
        torch.export.load(root / "e.pt2")
        assert torch.from_file(str(root / "f.bin"), size=4).tolist() == [0.0] * 4
        with pytest.raises(OSError, match=r"g\.so"):
            ctypes.CDLL(str(root / "g.so"))
    names = ("a.safetensors", "b.safetensors", "c.safetensors", "d.pt", "e.pt2", "f.bin", "g.so")
    assert files.list_names() == names
