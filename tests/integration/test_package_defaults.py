"""`extends` in `[tool.exporter]`: the defaults of an installed package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.api.gate_run import gate
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import load_layers, load_project
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from tests.integration.project import run_exporter, run_git
from tests.integration.results import make_green_project, write_results

DEFAULTS = "format = 1\n[defaults]\nowner = 'vision'\ntolerance = { noise = 8 }\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of an installed package."""
    folder = tmp_path / "installed/acme_defaults"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('is never imported')")
    (folder / "defaults.toml").write_text(DEFAULTS)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    return folder / "defaults.toml"


@pytest.fixture
def root(tmp_path: Path, package: Path) -> Path:
    root = make_green_project(tmp_path / "project")
    (root / "pyproject.toml").write_text(extend("acme_defaults:defaults.toml"))
    return root


def extend(value: str) -> str:
    return f'[tool.exporter]\nextends = "{value}"\n'


def test_entries_have_the_defaults_of_the_package_and_own_ones_win(
    root: Path, package: Path
) -> None:
    (spec,) = load_project(root).models
    assert (spec.owner, spec.tolerance.noise) == ("vision", 8)
    settings = root / "pyproject.toml"
    settings.write_text(f"{settings.read_text()}[tool.exporter.defaults]\nowner = 'text'\n")
    (spec,) = load_project(root).models
    assert (spec.owner, spec.tolerance.noise) == ("text", 8)
    # An export without changes compares the file.
    assert package in load_layers(root).files


@pytest.mark.parametrize(
    ("value", "defaults", "problem"),
    [
        ("acme_none:defaults.toml", DEFAULTS, "pyproject.toml:2: .*acme_none.* is not installed"),
        ("acme_defaults:other.toml", DEFAULTS, 'has no file "other.toml"'),
        ("acme_defaults", DEFAULTS, "expected a file of a package such as"),
        ("acme_defaults:../x.toml", DEFAULTS, "expected a file of a package such as"),
        ("acme_defaults:defaults.toml", f"{DEFAULTS}sed = 3\n", "defaults.toml:5: .*'seed'"),
        ("acme_defaults:defaults.toml", f"{DEFAULTS}[models.a]\n", "has no models"),
        ("acme_defaults:defaults.toml", "[defaults", "defaults.toml:1: "),
    ],
)
def test_a_wrong_package_or_file_is_a_problem_with_its_line(
    root: Path, package: Path, value: str, defaults: str, problem: str
) -> None:
    (root / "pyproject.toml").write_text(extend(value))
    package.write_text(defaults)
    with pytest.raises(ExporterError, match=problem):
        load_project(root)


def test_an_owner_selects_models(root: Path) -> None:
    manifest = load_project(root)
    assert len(make_plan(manifest, Selection(owners=("vision",))).selected) == 2
    with pytest.raises(ExporterError, match="no model has the owner 'visio'; did you mean"):
        make_plan(manifest, Selection(owners=("visio",)))


def test_a_looser_release_of_the_package_is_a_finding_also_if_it_is_accepted(
    root: Path, package: Path
) -> None:
    (root / ".gitignore").write_text("build/\n")
    write_results(root)
    run_exporter(root, "baseline", code=ExitCode.OK, PYTHONPATH=str(package.parents[1]))
    run_git(root, "init", "-q", "-b", "main")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "accepted")
    assert gate(load_project(root), os.environ, "main").is_passed
    package.write_text(DEFAULTS.replace("8 }", "800 }"))
    write_results(root)
    for _ in range(2):
        result = gate(load_project(root), os.environ, "main")
        changes = [(each.before, each.after) for each in result.findings if each.is_blocking]
        assert changes == [("tolerance: noise = 8.0", "tolerance: noise = 800.0")] * 2
        run_exporter(root, "baseline", PYTHONPATH=str(package.parents[1]))
