"""Files that a model opens, tests or lists are recorded without the tracer, too."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import pkgutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch  # the functions of a loaded torch are replaced

from exporter.core.import_object import ignore_project_bytecode
from exporter.worker.dependencies.opened_files import OpenedFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("data/words.json", "code.py", "other.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_files_that_are_read_inside_are_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OpenedFiles()
    (root / "other.json").read_text()
    with files.watch():
        json.loads((root / "data" / "words.json").read_text())
        monkeypatch.chdir(root / "data")
        Path("../code.py").read_bytes()
    (root / "other.json").read_text()
    read = files.list_accesses().read
    assert read == (f"{root}/data/words.json", f"{root}/data/../code.py")


def test_a_file_is_read_if_it_may_be_changed_in_place(root: Path) -> None:
    files = OpenedFiles()
    with files.watch():
        with (root / "other.json").open("r+") as opened:
            opened.read()
        sqlite3.connect(root / "code.py").close()
    assert files.list_accesses().read == (f"{root}/other.json", f"{root}/code.py")


def test_a_file_is_not_read_if_the_job_wrote_it_first(root: Path) -> None:
    files = OpenedFiles()
    with files.watch():
        (root / "new.json").write_text("{}")
        (root / "new.json").read_text()
        (root / "other.json").read_text()
        (root / "other.json").write_text("[]")
    accesses = files.list_accesses()
    assert accesses.read == (f"{root}/other.json",)
    assert accesses.written == accesses.read_back == {f"{root}/new.json"}


def test_two_may_watch_at_the_same_time(root: Path) -> None:
    one, other = OpenedFiles(), OpenedFiles()
    with one.watch():
        with other.watch():
            (root / "other.json").read_text()
        (root / "data/words.json").read_text()
    assert one.list_accesses().read == (f"{root}/other.json", f"{root}/data/words.json")
    assert other.list_accesses().read == (f"{root}/other.json",)


def test_tests_and_listings_are_recorded(root: Path) -> None:
    files = OpenedFiles()
    with files.watch():
        assert not (root / "absent.json").exists()
        assert os.listdir(root / "data") == ["words.json"]  # noqa: PTH208
        assert list((root / "data").glob("*.json"))
    accesses = files.list_accesses()
    assert f"{root}/absent.json" in accesses.tested
    assert accesses.listed == (f"{root}/data",)


def test_other_tests_of_a_path_are_recorded(root: Path) -> None:
    names = ("lstat", "access", "link", "readlink", "hard")
    for name in ("link", "readlink"):
        (root / name).symlink_to("code.py")
    (root / "hard").write_text("")
    files = OpenedFiles()
    with files.watch():
        assert not os.path.lexists(root / "lstat")
        assert not os.access(root / "access", os.R_OK)
        assert (root / "link").is_symlink()
        assert (root / "readlink").readlink() == Path("code.py")
        (root / "name").hardlink_to(root / "hard")
    assert {f"{root}/{name}" for name in names} <= set(files.list_accesses().tested)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_listing_of_an_open_folder_is_recorded(root: Path) -> None:
    files = OpenedFiles()
    with files.watch():
        assert [names for _, _, names, _ in os.fwalk(root / "data")] == [["words.json"]]
    accesses = files.list_accesses()
    assert f"{root}/data" in accesses.listed
    assert f"{root}/data" in accesses.listed_by_project


def test_an_import_searches_folders(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(root)
    ignore_project_bytecode()
    files = OpenedFiles()
    with files.watch(), pytest.raises(ImportError):
        __import__("module_that_does_not_exist")
    accesses = files.list_accesses()
    assert f"{root}/module_that_does_not_exist" in accesses.imports
    assert str(root) not in (*accesses.listed, *accesses.searched)
    with files.watch():
        list(pkgutil.iter_modules([str(root)]))
    assert str(root) in files.list_accesses().searched


def test_a_child_process_cannot_be_tracked_without_the_tracer() -> None:
    files = OpenedFiles()
    with files.watch():
        subprocess.run([sys.executable, "-c", ""], check=True)
    (text,) = files.list_accesses().untracked
    assert text == f"the files of the child process `{sys.executable}`"


def test_a_connection_to_another_machine_cannot_be_tracked() -> None:
    files = OpenedFiles()
    with files.watch():
        sys.audit("socket.connect", None, ("127.0.0.1", 80))
        sys.audit("socket.connect", None, "/run/socket")
        sys.audit("socket.connect", None, ("192.0.2.1", 443))
    assert files.list_accesses().untracked == ("data from the network (192.0.2.1)",)


def test_a_process_without_torch_does_not_import_it() -> None:
    code = (
        "import sys\nfrom exporter.worker.dependencies.opened_files import OpenedFiles\n"
        "with OpenedFiles().watch():\n    assert 'torch' not in sys.modules\n"
        "    from safetensors.torch import safe_open\n"  # has the name of the replaced function
        "assert safe_open.__wrapped__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_of_native_readers_are_listed(root: Path) -> None:
    import ctypes

    import safetensors.numpy
    import safetensors.torch

    tensors = {"x": torch.ones(4)}
    safetensors.torch.save_file(tensors, root / "a.safetensors")
    safetensors.torch.save_file(tensors, root / "b.safetensors")
    safetensors.torch.save_file(tensors, root / "c.safetensors")
    torch.jit.script(torch.nn.ReLU()).save(str(root / "d.pt"))
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(4),)), root / "e.pt2")
    (root / "f.bin").write_bytes(bytes(16))
    (root / "g.so").write_bytes(b"no library")
    files = OpenedFiles()
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
    assert {f"{root}/{name}" for name in names} <= set(files.list_accesses().read)


def open_below(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    os.close(os.open(path.name, os.O_RDONLY, dir_fd=folder))


#: Readers without an event of Python that has the path of the file.
READERS: dict[str, Callable[[Path], object]] = {
    "dir_fd": open_below,
    "URI": lambda path: sqlite3.connect(f"file:{path}?mode=ro", uri=True).close(),
    "storage": lambda path: torch.UntypedStorage.from_file(str(path), False, 4),
}


@pytest.mark.parametrize("name", READERS)
def test_the_file_of_a_reader_is_known_by_its_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "values.bin"
    path.write_bytes(bytes(4))
    files = OpenedFiles()
    with files.watch():
        READERS[name](path)
    assert str(path) in files.list_accesses().read


def wait_for_a_fork() -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def spawn() -> None:
    child = multiprocessing.get_context("spawn").Process(target=os.getpid)
    child.start()
    child.join()


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (wait_for_a_fork, "child process `a fork`"),
        (spawn, f"child process `{sys.executable}`"),
        (lambda: ctypes.CDLL(None), "library `libc`"),
    ],
)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_files_that_only_the_tracer_sees_leave_the_cell_stale(
    use: Callable[[], object], kind: str
) -> None:
    files = OpenedFiles()
    with files.watch():
        use()
    assert f"the files of the {kind}" in files.list_accesses().untracked
