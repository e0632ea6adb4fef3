"""Entries with problems become red models; the other entries of the project stay valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest, load_project
from exporter.manifest.schema.entry import ModelEntry
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.table import Key, read_keys
from exporter.planning.plan import make_plan
from tests.unit.manifest.projects import ENTRY, make_project

GOOD = f"[models.good]\n{ENTRY}"


def load(root: Path, **files: str) -> Manifest:
    paths = {"settings": "pyproject.toml"}
    texts = {paths.get(name, f"manifests/{name}.toml"): text for name, text in files.items()}
    return load_project(make_project(root, texts), keep_invalid=True)


def list_invalid(manifest: Manifest) -> dict[str, int]:
    return {spec.id: len(spec.problems) for spec in manifest.models if spec.problems}


def test_a_deprecated_key_works_and_has_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, key in ((ModelEntry, "seed"), (InputTable, "fill")):
        meaning = Key(deprecated=("2.0", f"`new_{key}`"))
        monkeypatch.setitem(read_keys(table), key, meaning)  # type: ignore[index]
    text = f"format = 1\n{GOOD}seed = 3\n[models.b]\nextends = 'good'\n"
    text += "inputs = [\n{ name = 'x', shape = [2], fill = 'ones' }]\n"
    with pytest.warns(FutureWarning) as caught:
        manifest = load(tmp_path, net=text)
    assert list_invalid(manifest) == {}
    assert manifest.find_model("b").seed == 3
    text = "version 2.0 removes this key; use `new_"
    assert [f"{each.filename}:{each.lineno}: {each.message}" for each in caught] == [
        f"manifests/net.toml:7: models.good.seed: {text}seed`",
        f"manifests/net.toml:11: models.b.inputs[0].fill: {text}fill`",
    ]


def test_an_invalid_entry_keeps_its_cells_and_has_all_its_problems(tmp_path: Path) -> None:
    bad = ENTRY.replace("vision.py:AlexNet", "vision.py:AlexNot")
    text = f"format = 1\n{GOOD}[models.bad]\n{bad}mode = 'fast'\ndevices = ['quantum']\nshap = 3\n"
    manifest = load(tmp_path, net=text)
    assert manifest.problems == ()
    assert [spec.id for spec in manifest.models] == ["good", "bad"]
    bad_spec = manifest.find_model("bad")
    assert [problem.partition(" ")[0] for problem in bad_spec.problems] == [
        "manifests/net.toml:8:",
        "manifests/net.toml:12:",
        "manifests/net.toml:13:",
        "manifests/net.toml:14:",
    ]
    assert manifest.find_model("good").problems == ()
    assert bad_spec.opsets == manifest.find_model("good").opsets
    assert bad_spec.devices == ("cpu",)
    assert bad_spec.line == 7
    assert sum(each.cell.model == "bad" for each in make_plan(manifest).cells) == 13


def test_without_valid_opsets_an_entry_has_one_cell(tmp_path: Path) -> None:
    bad = ENTRY.replace('"9..21"', '"9..99"')
    manifest = load(tmp_path, net=f"format = 1\n{GOOD}[models.bad]\n{bad}")
    assert manifest.find_model("bad").opsets == (18,)


def test_an_expectation_or_a_skip_does_not_hide_an_invalid_entry(tmp_path: Path) -> None:
    text = f"{ENTRY}expect = [{{ reason = 'known' }}]\nskip = [{{ reason = 'slow' }}]\nseed = -1\n"
    manifest = load(tmp_path, net=f"format = 1\n{GOOD}[models.bad]\n{text}")
    assert manifest.find_model("bad").expect == ()
    assert not any(each.skip for each in make_plan(manifest).cells)


def test_a_child_of_an_invalid_entry_is_invalid_unless_it_replaces_the_key(tmp_path: Path) -> None:
    text = (
        f"format = 1\n{GOOD}[models.bad]\n{ENTRY}mode = 'fast'\n"
        "[models.same]\nextends = 'bad'\n[models.repaired]\nextends = 'bad'\nmode = 'eval'\n"
        "[models.orphan]\nextends = 'god'\n[models.self]\nextends = 'self'\n"
    )
    manifest = load(tmp_path, net=text)
    assert list_invalid(manifest) == {"bad": 1, "same": 1, "orphan": 1, "self": 1}
    assert "did you mean 'good'" in manifest.find_model("orphan").problems[0]
    assert manifest.problems == ()


def test_a_problem_of_the_defaults_concerns_the_entries_that_inherit_it(tmp_path: Path) -> None:
    entry = ENTRY.replace("[models.net]\n", "")
    manifest = load(
        tmp_path,
        a=f"format = 1\n[defaults]\nmode = 'fast'\n[models.one]\n{entry}"
        f"[models.two]\n{entry}mode = 'train'\n",
        b=f"format = 1\n{GOOD}",
        c=f"format = 1\n[defaults]\naxes.bacth.max = 3\n[models.three]\n{entry}",
    )
    assert list_invalid(manifest) == {"one": 1, "three": 1}
    assert manifest.problems == ()


def test_a_default_that_every_entry_replaces_is_a_problem_of_the_file(tmp_path: Path) -> None:
    text = f"format = 1\n[defaults]\nopsets = 99\n{GOOD}"
    manifest = load(tmp_path, net=text)
    assert list_invalid(manifest) == {}
    (problem,) = manifest.problems
    assert str(problem).startswith("manifests/net.toml:3: defaults.opsets: ")


@pytest.mark.parametrize(
    "text", ["format = 1\n[models.x\n", "\x00", "format = 1\nmodel.x.seed = 1\n"]
)
def test_a_file_without_readable_entries_is_a_problem_of_the_project(
    text: str, tmp_path: Path
) -> None:
    manifest = load(tmp_path, a=text, b=f"format = 1\n{GOOD}")
    assert [spec.id for spec in manifest.models] == ["good"]
    assert [str(problem.location).partition(":")[0] for problem in manifest.problems] == [
        "manifests/a.toml"
    ]


@pytest.mark.parametrize("head", ["", "format = 2\n"])
def test_an_unknown_format_makes_every_entry_of_the_file_invalid(head: str, tmp_path: Path) -> None:
    other = f"format = 1\n[models.child]\nextends = 'good'\n[models.other]\n{ENTRY}"
    manifest = load(tmp_path, a=f"{head}{GOOD}", b=other)
    assert list_invalid(manifest) == {"good": 1, "child": 1}


def test_entries_that_are_no_tables_or_share_an_id_are_invalid(tmp_path: Path) -> None:
    manifest = load(
        tmp_path,
        a=f"format = 1\nmodels.three = 3\n{GOOD}[models.child]\nextends = 'three'\n",
        b=f"format = 1\n{GOOD}[models.other]\n{ENTRY}",
    )
    assert list_invalid(manifest) == {"good": 1, "child": 1, "three": 1}
    assert "already exists" in manifest.find_model("good").problems[0]
    assert manifest.find_model("child").problems == manifest.find_model("three").problems


def test_an_id_that_cannot_name_a_folder_is_a_problem_of_the_file(tmp_path: Path) -> None:
    manifest = load(tmp_path, a=f"format = 1\n{GOOD}[models.Bad]\n{ENTRY}[models.repro]\n{ENTRY}")
    assert [spec.id for spec in manifest.models] == ["good"]
    assert len(manifest.problems) == 2


def test_invalid_settings_of_the_project_stop_every_command(tmp_path: Path) -> None:
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, settings="[tool.exporter]\njobs = 'all'\n", net=f"format = 1\n{GOOD}")
    assert raised.value.exit_code is ExitCode.MANIFEST


def test_a_project_without_any_readable_entry_stops_every_command(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match="not valid TOML"):
        load(tmp_path, net="[models")


def test_without_the_option_every_problem_is_an_error(tmp_path: Path) -> None:
    root = make_project(tmp_path, {"manifests/net.toml": f"format = 1\n{GOOD}mode = 'fast'\n"})
    with pytest.raises(ExporterError, match=r"models\.good\.mode"):
        load_project(root)
