"""The search for sources, which does not run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from tests.integration.project import run_git
from tests.unit.manifest.projects import ENTRY, load_model, make_project


def _source(root: Path, source: str) -> str:
    return load_model(root, entry=ENTRY.replace("models/vision.py:AlexNet", source)).source


@pytest.mark.parametrize(
    "source",
    [
        *(f"models/vision.py:{name}" for name in ("AlexNet", "build", "make", "Renamed")),
        *(f"models/vision.py:{name}" for name in ("Backbone", "first", "second", "rest")),
        *(f"models/vision.py:{name}" for name in ("annotated", "fast", "fallback")),
        # Modules that can define any name, and those of this environment.
        *("models/star.py:AnyName", "models/lazy.py:AnyName"),
        *("json:loads", "json.decoder:JSONDecoder", "zlib:crc32"),
        # What is not installed, or what only an import can find, is left to the export.
        *("no_such_package:Net", "no_such_package.nets:Net", "json.generated:Net"),
    ],
)
def test_a_source_that_is_found_or_that_only_an_import_can_find(
    tmp_path: Path, source: str
) -> None:
    assert _source(tmp_path, source) == source


@pytest.mark.parametrize("name", ["inner", "width", "problem", "somewhere", "Imported", "kernels"])
def test_names_that_the_top_level_does_not_define(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExporterError, match=f'vision.py does not define "{name}"'):
        _source(tmp_path, f"models/vision.py:{name}")


@pytest.mark.parametrize("folder", ["", "manifests"])
def test_a_module_of_the_project_is_found_before_others(tmp_path: Path, folder: str) -> None:
    package = tmp_path / folder / "json"  # shadows the standard library, as at run time
    package.mkdir(parents=True)
    (package / "mine.py").write_text("class Net:\n    pass\n")
    assert _source(tmp_path, "json.mine:Net") == "json.mine:Net"


def test_a_problem_in_a_module_of_the_project_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text("import (\n")
    with pytest.raises(ExporterError, match=r"nets/__init__\.py:1: is not valid Python"):
        _source(tmp_path, "nets:Net")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("net.pt", '"net.pt" is a folder, expected a file; did you mean "net.pt/last.pt"?'),
        ("trained", '"trained" is a folder, expected a file; did you mean "trained/a.bin"?'),
        ("empty", '"empty" is a folder, expected a file; name the file'),
        ("none", "expected a file with a suffix of .safetensors"),
        ("..", '".." is a folder, expected a file; name the file'),
        ("../..", "expected a file with a suffix of .safetensors"),
        ("/usr", "expected a file with a suffix of .safetensors"),
    ],
)
def test_a_folder_in_place_of_weights(text: str, expected: str, tmp_path: Path) -> None:
    root = make_project(tmp_path)
    for name in ("net.pt/last.pt", "net.pt/b.bin", "trained/a.bin", "trained/a.txt", "empty/a.md"):
        (root / "manifests" / name).parent.mkdir(exist_ok=True)
        (root / "manifests" / name).touch()
    with pytest.raises(ExporterError) as raised:
        load_model(root, entry=f'{ENTRY}weights = "{text}"\n')
    assert "manifests/" in str(raised.value)
    assert f"weights: {expected}" in str(raised.value)


def test_nothing_is_imported(tmp_path: Path) -> None:
    package = tmp_path / "loud"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "net.py").write_text("raise SystemExit('imported')\nNet = 1\n")
    assert _source(tmp_path, "loud.net:Net") == "loud.net:Net"


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\n\x00\n", b"(" * 5000, b"  x = 1\n"])
def test_files_that_are_not_python(tmp_path: Path, content: bytes) -> None:
    root = make_project(tmp_path, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    (root / "manifests" / "models" / "vision.py").write_bytes(content)
    with pytest.raises(ExporterError, match=r"models/vision\.py.*is not valid Python"):
        load_project(root)


def test_a_warning_in_a_source_is_ignored(tmp_path: Path) -> None:
    root = make_project(tmp_path, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    (root / "manifests" / "models" / "vision.py").write_text("AlexNet = '\\d' is 3\n")
    assert load_project(root).find_model("net")


def test_a_name_too_long_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match="does not exist"):
        _source(tmp_path, f"{'x' * 5000}.py:Net")


@pytest.mark.parametrize(
    ("name", "is_replaced"),
    [
        ("absent.pt", True),
        ("dangling.pt", True),
        *((name, False) for name in ("garbage.pt", "folder.pt", "loop.pt", "behind.pt/net.pt")),
        *((name, False) for name in ("tracked.bin", "../../../outside.pt", "absent.onnx")),
    ],
)
def test_initial_weights_replace_only_a_missing_file_that_git_ignores(
    tmp_path: Path, name: str, *, is_replaced: bool
) -> None:
    root = tmp_path / "project"
    entry = f'[models.net]\nweights = "../weights/{name}"\n{ENTRY}'
    make_project(root, {"manifests/net.toml": f"format = 1\n{entry}"})
    run_git(root, "init", "-q")
    (root / ".gitignore").write_text("weights/*.pt\n")
    (root / "weights/folder.pt").mkdir(parents=True)
    for file in ("garbage.pt", "behind.pt"):
        (root / "weights" / file).write_text("half of a download")
    (root / "weights/dangling.pt").symlink_to("/nowhere/net.pt")
    (root / "weights/loop.pt").symlink_to("loop.pt")
    (spec,) = load_project(root, keep_invalid=True, initial_weights=True).models
    assert spec.lacks_weights is is_replaced
    assert bool(spec.problems) is (not is_replaced and name != "garbage.pt")
    (spec,) = load_project(root, keep_invalid=True).models
    assert bool(spec.problems) is (name != "garbage.pt")
