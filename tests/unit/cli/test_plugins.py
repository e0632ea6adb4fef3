"""The examples of docs/extending.md run as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from exporter.checks.validity_checks import check_placement
from exporter.cli.entry_point import BUILT_IN, run
from exporter.commands.doctor.doctor import examine_entry_points
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode
from exporter.core.import_object import find_plugins
from exporter.manifest import Device
from exporter.records.record import Status
from exporter.report.reports_folder import render_reports
from exporter.runtimes import open_session
from tests.distributions import write_distribution
from tests.integration.results import make_green_project
from tests.unit.checks.contexts import make_subject
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/extending.md"
#: Run with the package of the example: the effects of the key and of its check.
KEY_WITH_A_CHECK = """
import sys
from pathlib import Path

import exporter
from exporter.cache.fingerprint import compute_fingerprint
from exporter.checks import STRUCTURE_CHECKS
from exporter.core.check_table import FAILURE_CODES
from exporter.gate.revision_promises import find_contract_changes
from tests.unit.checks.contexts import contract, make_subject
from tests.unit.factory import make_manifest
from tests.unit.manifest.projects import load_model

root = Path(sys.argv[1])
assert exporter.__file__.startswith(str(root))
old, new = (load_model(root / size, f'max_size = "{size}"\\n') for size in ("5MB", "4MB"))
before, after = map(compute_fingerprint, (old, new))
assert {part for part in before if before[part] != after[part]} == {"checks"}
old, new = map(make_manifest, (old, new))
assert not find_contract_changes(old, new) and find_contract_changes(new, old)
(check,) = (each for each in STRUCTURE_CHECKS if each.name == "size")
for limit, status in ((None, None), (10, "fail"), (10_000, "pass")):
    subject = make_subject(root, spec=contract(max_size=limit))
    assert (check(subject).status if check.applies(subject) else None) == status
assert "E-size" in FAILURE_CODES
"""


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
        function = points.rpartition(":")[2].partition('"')[0]
        texts = {"entry_points.txt": f"[{group}]\n{name} = {module}:{function}\n"}
        write_distribution(self.folder, name, **texts)
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
    assert not list(examine_entry_points(BUILT_IN))
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
    [note] = examine_entry_points(BUILT_IN)
    assert (note.level, note.subject) == ("note", "command schema")
    assert note.message.startswith("size has a command with the name of a built-in one, which is")


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
    assert session.output_names == ("y",)
    assert check_placement(subject, session, "own").status is Status.PASS


def test_a_report_of_another_package_is_written(packages: Installer) -> None:
    packages.install("A report file")
    files = render_reports(make_manifest(make_spec("net")), make_run(make_record("net/18/cpu")))
    assert files["plugins/summary/summary.txt"] == "1 records"


def test_the_edits_of_a_key_with_a_check_are_complete(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "exporter", tmp_path / "exporter", ignore=ignore)
    for name, edits in re.findall(r"```diff\n\+\+\+ (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        path = tmp_path / name
        text = path.read_text()
        for edit in edits.split("@@\n"):
            lines = [line if line.strip() else " \n" for line in edit.splitlines(keepends=True)]
            old, new = (
                "".join(line[1:] for line in lines if line[0] in side) for side in (" -", " +")
            )
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text)
    command = [sys.executable, "-c", KEY_WITH_A_CHECK, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
