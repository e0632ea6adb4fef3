"""The environment and the project select the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.entry_point import run
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Project
from exporter.store import Store
from exporter.store.project_store import open_store
from exporter.store.remote_store import RemoteStore
from tests.unit.factory import make_manifest
from tests.unit.manifest.projects import ENTRY
from tests.unit.manifest.projects import make_project as write_project


def make_project(**fields: object) -> Project:
    return make_manifest(root="/project").project.model_copy(update=fields)


def find_path(project: Project, **environment: str) -> str | None:
    store = open_store(project, environment)
    return str(store.path) if store else None


def test_the_setting_selects_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert find_path(make_project()) == "/project/build/.store"
    assert find_path(make_project(build="out")) == "/project/out/.store"
    assert find_path(make_project(store="../shared")) == "/project/../shared"
    assert find_path(make_project(store="/srv/store")) == "/srv/store"
    assert find_path(make_project(store="~/.cache/x")) == "/home/me/.cache/x"
    assert find_path(make_project(store="off")) is None


def test_all_worktrees_of_a_repository_share_the_default_store(tmp_path: Path) -> None:
    main, other, part = (tmp_path / name for name in ("main/models", "other", "main/part"))
    linked = tmp_path / "main/.git/worktrees/other"
    for folder in (main, other, part, linked, tmp_path / "main/.git/modules/part"):
        folder.mkdir(parents=True)
    (other / ".git").write_text(f"gitdir: {linked}\n")
    (linked / "commondir").write_text("../..\n")
    (part / ".git").write_text("gitdir: ../.git/modules/part\n")  # a submodule
    paths = [find_path(make_project(root=str(root))) for root in (main, other, part)]
    shared = str(tmp_path / "main/.git/exporter-store")
    assert paths == [shared, shared, str(tmp_path / "main/.git/modules/part/exporter-store")]
    remote = find_path(make_project(root=str(main), store=URL))
    assert remote == str(main / "build/.store")


def test_the_environment_overrides_the_setting() -> None:
    assert find_path(make_project(store="off"), EXPORTER_STORE="/ci/store") == "/ci/store"
    assert find_path(make_project(store="/srv/store"), EXPORTER_STORE="off") is None
    assert find_path(make_project(store="/srv/store"), EXPORTER_STORE="") == "/srv/store"


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("TRUE", True), ("0", False), ("", False)]
)
def test_the_environment_makes_the_store_read_only(value: str, expected: bool) -> None:
    store = open_store(make_project(), {"EXPORTER_STORE_READONLY": value})
    assert store is not None
    assert store.is_read_only is expected


def test_another_value_is_an_error() -> None:
    with pytest.raises(ExporterError, match="expected 1 or 0, got 'maybe'"):
        open_store(make_project(), {"EXPORTER_STORE_READONLY": "maybe"})


def test_the_limits() -> None:
    default, limited = open_store(make_project(), {}), open_store(make_project(store_size=5), {})
    assert default is not None
    assert limited is not None
    assert (default.limits.size, default.limits.age) == (10 << 30, 90 * 24 * 3600)
    assert limited.limits.size == 5


URL = "file:///mnt/cells"
LINES = {"store": 5}
SECRET = "0123456789abcdef0123456789abcdef"


def open_remote(environment: dict[str, str] | None = None, **fields: object) -> RemoteStore:
    remote = open_url(environment, **fields).remote
    assert remote is not None
    return remote


def open_url(environment: dict[str, str] | None = None, **fields: object) -> Store:
    project = make_manifest(root="/project").project
    project = project.model_copy(update={"store": URL, "lines": LINES, **fields})
    store = open_store(project, environment or {})
    assert store is not None
    return store


def test_a_url_is_a_remote_store_beside_that_of_the_build_folder() -> None:
    store = open_url()
    assert str(store.path) == "/project/build/.store"
    assert store.remote is not None
    assert store.remote.label == f"pyproject.toml:5: tool.exporter.store: {URL}"
    assert not store.remote.is_read_only
    assert open_remote({"EXPORTER_STORE": "file:///x"}).label == "EXPORTER_STORE: file:///x"


def test_read_only_means_the_remote_store() -> None:
    store = open_url({"EXPORTER_STORE_READONLY": "1"})
    assert store.remote is not None
    assert store.remote.is_read_only
    assert not store.is_read_only
    mirror = open_url(store="https://example.com/cells").remote
    assert mirror is not None
    assert mirror.is_read_only


def test_a_url_imports_no_package() -> None:
    """An export without changes, which opens the store, must not pay for fsspec."""
    program = (
        "import importlib.util, sys\n"
        "importlib.util.find_spec = lambda name: name\n"
        "from tests.unit.store.test_project_store import open_url\n"
        "open_url(store='s3://bucket')\n"
        "assert 'fsspec' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    ("scheme", "missing", "command"),
    [("s3", "s3fs", "pip install s3fs`"), ("gs", "fsspec", "pip install fsspec`")],
)
def test_a_missing_package_has_its_command(
    monkeypatch: pytest.MonkeyPatch, scheme: str, missing: str, command: str
) -> None:
    def find_spec(name: str) -> object:
        return None if name == missing else object()

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    with pytest.raises(ExporterError) as caught:
        open_url(store=f"{scheme}:///mnt/cells")
    message = str(caught.value)
    assert message.startswith("pyproject.toml:5: tool.exporter.store: ")
    assert f"the package {missing} is not installed" in message
    assert command in message
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_an_invalid_url_of_the_environment() -> None:
    with pytest.raises(ExporterError) as caught:
        open_url({"EXPORTER_STORE": "s3a://bucket"})
    message = str(caught.value)
    assert message.startswith('EXPORTER_STORE: "s3a://bucket" has the unknown scheme "s3a"; ')
    assert message.endswith("did you mean 's3'?")


def test_the_key_is_a_variable() -> None:
    assert open_remote().has_key is False
    assert open_remote({"EXPORTER_STORE_KEY": f"{SECRET}\n"}).has_key
    with pytest.raises(ExporterError, match="EXPORTER_STORE_KEY: the key has 5 characters, expec"):
        open_url({"EXPORTER_STORE_KEY": "short"})


def test_the_plan_prints_why_a_remote_store_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"[tool.exporter]\nstore = 'file://{tmp_path}/x'\n"
    manifest = f"format = 1\n[models.tiny]\n{ENTRY}".replace('"9..21"', "18")
    write_project(tmp_path, {"pyproject.toml": settings, "manifests/tiny.toml": manifest})
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "entries").write_text("no folder")
    assert run(["plan", "--root", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "1 cell to run" in output
    assert "pyproject.toml:2: tool.exporter.store: file://" in output
    assert "1 request failed: Not a directory; run `exporter doctor`" in output
