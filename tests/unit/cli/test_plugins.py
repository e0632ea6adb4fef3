"""The examples of docs/extending.md for other packages run as they stand."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from exporter.checks.validity_checks import PlacementCheck
from exporter.cli.entry_point import run
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode
from exporter.core.import_object import find_plugins
from exporter.manifest import Device
from exporter.plugins.report_files import render_exports
from exporter.records.record import Status
from exporter.runtimes import open_session
from tests.integration.results import make_green_project
from tests.unit.checks.contexts import make_subject
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

PAGE = Path(__file__).parents[3] / "docs/extending.md"


class Installer:
    """Installs the example of a section as a distribution on `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, section: str, code: str | None = None) -> None:
        text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        (points,) = re.findall(r"```toml\n\[project.entry-points.*?\n```", text, re.DOTALL)
        _, group, name, module, _ = re.split(r'"\]\n|"| = "|:', points.partition("\n")[2])[:5]
        path = self.folder / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        path.write_text(found if code is None else code)
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        function = points.rpartition(":")[2].partition('"')[0]
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{function}\n")
        find_plugins.cache_clear()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    folder = tmp_path / "site"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Installer(folder)
    find_plugins.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def test_a_command_of_another_package_has_its_help_and_its_document(
    packages: Installer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.install("A command")
    root = str(make_green_project(tmp_path / "project"))
    assert run(["size", "--root", root, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert run(["schema", "size"]) == ExitCode.OK
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert run(["--help"]) == ExitCode.OK
    assert "Other packages:\n  size  Show the size of each file.\n" in capsys.readouterr().out
    assert run(["sizes"]) == ExitCode.MANIFEST
    assert "did you mean 'size'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "message"),
    [("import missing_of_test", "No module named"), ("size = 3", "expected a command of click")],
)
def test_a_broken_package_has_a_message_and_hides_no_other_command(
    code: str, message: str, packages: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.install("A command", code)
    assert run(["size"]) == ExitCode.ENVIRONMENT
    assert message in capsys.readouterr().err
    assert run(["--help"]) == run(["schema", "plan"]) == ExitCode.OK
    assert "compare" in capsys.readouterr().out.casefold()


def test_a_built_in_command_wins_over_a_package(
    packages: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.install("A command")
    points = next(packages.folder.glob("*.dist-info")) / "entry_points.txt"
    points.write_text(points.read_text().replace("size =", "schema ="))
    assert run(["schema"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["$schema"]


@pytest.mark.parametrize("name", ["environments", "expectations"])
def test_a_removed_command_names_its_replacement(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name]) == ExitCode.MANIFEST
    assert re.search(f"'{name}'; .*(docs/devices.md|exporter gate)", capsys.readouterr().err)


def test_a_runtime_of_another_package_runs_a_file(packages: Installer, tmp_path: Path) -> None:
    packages.install("A runtime")
    subject = make_subject(tmp_path)
    session = open_session(subject.path, Device(name=DeviceName("own"), runtime="own"))
    (output,) = session.run({"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(output, np.full((2, 3), 2, np.float32))
    assert PlacementCheck()(subject, session, "own").status is Status.PASS


def test_a_report_of_another_package_is_written(packages: Installer) -> None:
    packages.install("A report file")
    files = render_exports(make_manifest(make_spec("net")), make_run(make_record("net/18/cpu")))
    assert files["plugins/summary/summary.txt"] == "1 records"
