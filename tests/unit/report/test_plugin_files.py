"""Plugins of other distributions add files to the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.report.plugin_files import (
    describe_plugins,
    list_plugin_folders,
    render_plugin_files,
)
from exporter.report.reports_folder import compute_key, write_files
from tests.distributions import write_distribution
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(make_spec("net", opsets=(18,)))
RUN = make_run(make_record("net/18/cpu"))
CODE = """
def render(manifest, run):
    text = f"{len(manifest.models)} model, {len(run.records)} record"
    return {"summary.txt": text, "data.bin": bytes([0, 255])}
"""


class Installer:
    """Installs small distributions with an entry point into a folder on `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def install(
        self, name: str, code: str = CODE, plugin: str = "summary", version: str = "1.0"
    ) -> Path:
        module = self.folder / f"{name}.py"
        module.write_text(code)
        self.modules.append(name)
        texts = {"entry_points.txt": f"[exporter.reports]\n{plugin} = {name}:render\n"}
        write_distribution(self.folder, name, version, **texts)
        return module


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    installer = Installer(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield installer
    for name in installer.modules:
        sys.modules.pop(name, None)


def key() -> str:
    return compute_key((describe_plugins(),), list_plugin_folders())


def test_without_plugins_there_are_no_files() -> None:
    assert render_plugin_files(MANIFEST, RUN) == {}
    assert list_plugin_folders() == []


def test_a_plugin_adds_text_and_bytes(plugins: Installer, tmp_path: Path) -> None:
    plugins.install("summary_plugin")
    files = render_plugin_files(MANIFEST, RUN)
    assert files["plugins/summary/summary.txt"] == "1 model, 1 record"
    assert files["plugins/summary/data.bin"] == b"\x00\xff"
    write_files(tmp_path / "reports", files)
    assert (tmp_path / "reports/plugins/summary/summary.txt").read_text() == "1 model, 1 record"
    assert (tmp_path / "reports/plugins/summary/data.bin").read_bytes() == b"\x00\xff"


def test_pages_depend_on_the_code_and_the_version_of_a_plugin(plugins: Installer) -> None:
    keys = [key()]
    module = plugins.install("keyed_plugin")
    keys.append(key())
    module.write_text(CODE + "# changed\n")
    keys.append(key())
    plugins.folder.joinpath("keyed_plugin-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: keyed_plugin\nVersion: 2.0\n"
    )
    keys.append(key())
    assert len(set(keys)) == 4
    assert key() == keys[-1]
    assert "keyed_plugin" not in sys.modules


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ImportError('needs foo')", "cannot be loaded: needs foo"),
        ("", "cannot be loaded: .*render"),
        ("def render(manifest, run): return {'../x': ''}", r"invalid file name '\.\./x'"),
        ("def render(manifest, run): return {'a/b': ''}", "invalid file name 'a/b'"),
        ("def render(manifest, run): return {'.x': ''}", r"invalid file name '\.x'"),
        ("def render(manifest, run): return {'x': 3}", "'x' is int; return str or bytes"),
    ],
)
def test_a_broken_plugin_is_named(plugins: Installer, code: str, message: str) -> None:
    plugins.install("broken_plugin", code)
    with pytest.raises(ExporterError, match=message) as caught:
        render_plugin_files(MANIFEST, RUN)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert "report plugin 'summary' of broken_plugin" in str(caught.value)


def test_two_plugins_with_one_name_are_an_error(plugins: Installer) -> None:
    plugins.install("first_plugin")
    plugins.install("second_plugin")
    with pytest.raises(ExporterError, match="two distributions use this name"):
        render_plugin_files(MANIFEST, RUN)


def test_a_plugin_with_an_invalid_name_is_an_error(plugins: Installer) -> None:
    plugins.install("named_plugin", plugin="../up")
    with pytest.raises(ExporterError, match="invalid name"):
        describe_plugins()
