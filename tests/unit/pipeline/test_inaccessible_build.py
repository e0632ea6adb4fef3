"""A build folder with wrong permissions is repaired; files of others get a message with the owner.

The tests run as an ordinary user, because permissions do not apply to root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import list_inaccessible, make_accessible
from exporter.jobs import JobFolder
from exporter.pipeline.build_folder import repair_folder
from exporter.tools.doctor import examine_build
from tests.unit.pipeline.builders import manifest
from tests.unit.pipeline.test_build import TODAY
from tests.unit.pipeline.test_corrupted_build import assert_complete, export

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="this system has no owners and modes of files"
)

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Run the block without the privileges of root."""
    if IS_ROOT:
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if IS_ROOT:
            os.seteuid(0)
            os.setegid(0)


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a folder of the ordinary user in a place that it can enter."""
    folder = Path(tempfile.mkdtemp())
    if IS_ROOT:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    if not IS_ROOT:
        make_accessible(folder)
    shutil.rmtree(folder)


def private_leftover(build: Path) -> None:
    (build / ".work/tiny-abc/inner").mkdir(parents=True)
    (build / ".work/tiny-abc/inner").chmod(0)
    (build / ".work").chmod(0)


def killed_leftover(build: Path) -> None:
    (build / ".killed/tiny-abc/inner").mkdir(parents=True)
    (build / ".killed/tiny-abc/inner").chmod(0)
    (build / ".killed").chmod(0)


def model_folder(build: Path) -> None:
    (build / "tiny").chmod(0)


def records(build: Path) -> None:
    (build / "tiny/records").chmod(0)


def files(build: Path) -> None:
    for path in build.rglob("*"):
        if path.is_file():
            path.chmod(0)


def everything(build: Path) -> None:
    for path in sorted(build.rglob("*"), reverse=True):
        path.chmod(0)
    build.chmod(0)


@pytest.mark.parametrize(
    "spoil", [private_leftover, killed_leftover, model_folder, records, files, everything]
)
def test_a_build_folder_without_permissions_is_repaired(
    root: Path, spoil: Callable[[Path], None]
) -> None:
    of = manifest(root)
    export(of)  # as root, too, because it imports the last modules
    if IS_ROOT:
        shutil.rmtree(root / "build")
    with ordinary_user():
        export(of)
        spoil(root / "build")
        assert list(list_inaccessible(root / "build"))
        export(of)
        assert_complete(of)
        export(of)
        assert not (root / "build/.work").exists()


def test_the_doctor_finds_inaccessible_files(root: Path) -> None:
    of = manifest(root)
    export(of)
    if IS_ROOT:
        shutil.rmtree(root / "build")
    with ordinary_user():
        export(of)
        assert not [d for d in examine_build(of, TODAY) if "cannot be read" in d.message]
        (root / "build/tiny/reference.json").chmod(0)
        texts = [d.message for d in examine_build(of, TODAY)]
    assert f"{root}/build/tiny/reference.json: cannot be read or changed" in texts


def test_a_job_folder_of_a_worker_with_another_umask_is_repaired(root: Path) -> None:
    with ordinary_user():
        folder = JobFolder(root / "tiny-abc")
        for path in (folder.path, folder.records, folder.log(None).parent):
            path.mkdir()
        folder.log(None).write_text("text")
        for path in (folder.log(None), folder.log(None).parent, folder.records, folder.path):
            path.chmod(0)
        repair_folder(folder)
        assert folder.log(None).read_text() == "text"
        assert folder.read_records() == {}


def leftover_of_root(build: Path) -> Path:
    (build / ".work/tiny-abc").mkdir(parents=True)
    (build / ".work/tiny-abc/file").touch()
    return build / ".work/tiny-abc/file"


def model_of_root(build: Path) -> Path:
    (build / "tiny/records/17.cpu.json").unlink()
    os.chown(build / "tiny", 0, 0)
    return build / "tiny"


def lock_of_root(build: Path) -> Path:
    (build / ".lock").unlink(missing_ok=True)
    (build / ".lock").touch()
    (build / ".lock").chmod(0o600)
    return build / ".lock"


@pytest.mark.skipif(not IS_ROOT, reason="only root can create files of another user")
@pytest.mark.parametrize("spoil", [leftover_of_root, model_of_root, lock_of_root])
def test_files_of_another_user_are_reported_with_their_owner(
    root: Path, spoil: Callable[[Path], Path]
) -> None:
    of = manifest(root)
    export(of)
    shutil.rmtree(root / "build")
    with ordinary_user():
        export(of)
    path = spoil(root / "build")
    name = pwd.getpwuid(0).pw_name
    with ordinary_user():
        with pytest.raises(ExporterError) as caught:
            export(of)
        assert caught.value.exit_code is ExitCode.ENVIRONMENT
        assert f"{path} belongs to the user {name}" in str(caught.value)
