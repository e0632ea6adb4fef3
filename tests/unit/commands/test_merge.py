"""A merge needs all shards, and uses only their own models."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cache.fingerprint import compute_fingerprint, hash_device
from exporter.commands.merge import (
    MergedShards,
    merge_shards,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import write_json
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.shard_note import read_shard_note, write_shard_note
from exporter.planning import Selection
from exporter.planning.plan import Plan, Shard, assign_models, make_plan, select_shard
from exporter.records.record import Record, RunRecord, read_run
from exporter.virtual_environments import EnvironmentDefinition
from tests.unit.factory import (
    TOOLS,
    key_by_text,
    make_artifact,
    make_manifest,
    make_record,
    make_spec,
)


def project(root: Path) -> Manifest:
    specs = [make_spec(id, opsets=(18,), devices=("cpu",)) for id in ("a", "b", "c")]
    return make_manifest(*specs, root=str(root))


def record(manifest: Manifest, model: str, text: str) -> Record:
    device = hash_device(manifest.project.find_device("cpu"))
    parts = compute_fingerprint(manifest.find_model(model)) | {"device": device}
    artifact = make_artifact(model, 18, sha256=hashlib.sha256(text.encode()).hexdigest())
    return make_record(f"{model}/18/cpu", fingerprint=parts, artifact=artifact)


def make_shard(folder: Path, manifest: Manifest, index: int, *models: str) -> Path:
    """Create the folder of shard `index` of 2 with a result for each of `models`."""
    for model in models:
        (folder / model).mkdir(parents=True)
        (folder / model / "18.onnx").write_text(f"{model} of {index}")
    records = tuple(record(manifest, model, f"{model} of {index}") for model in models)
    write_json(folder / "results.json", RunRecord(tools=TOOLS, records=records))
    write_shard_note(folder, Shard(index=index, count=2), make_plan(manifest))
    return folder


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return project(tmp_path / "project")


@pytest.fixture
def folders(tmp_path: Path, manifest: Manifest) -> list[Path]:
    """Create both shards. The first has `a` and `c`, and an old result of `b` from its cache."""
    one = make_shard(tmp_path / "one", manifest, 1, "a", "b", "c")
    return [one, make_shard(tmp_path / "two", manifest, 2, "b")]


def merged(manifest: Manifest, folders: list[Path]) -> MergedShards:
    return merge_shards(manifest, make_plan(manifest), folders)


def test_every_shard_provides_its_own_models(manifest: Manifest, folders: list[Path]) -> None:
    result = merged(manifest, folders)
    build = Path(manifest.project.root) / "build"
    assert not result.results.missing
    assert list(key_by_text(read_run(build / "results.json").by_cell())) == [
        "a/18/cpu",
        "b/18/cpu",
        "c/18/cpu",
    ]
    texts = [(build / model / "18.onnx").read_text() for model in "abc"]
    assert texts == ["a of 1", "b of 2", "c of 1"]
    assert not (build / "shard.json").exists()


def test_no_file_of_the_user_is_replaced(manifest: Manifest, folders: list[Path]) -> None:
    mine = Path(manifest.project.root) / "build/b/model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(ExporterError, match="build/b") as caught:
        merged(manifest, folders)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert mine.read_text() == "mine"
    assert [path.name for path in mine.parent.iterdir()] == [mine.name]


def test_a_cell_without_a_result_is_missing(
    manifest: Manifest, folders: list[Path], tmp_path: Path
) -> None:
    merged(manifest, folders)  # earlier results of this folder do not count
    empty = make_shard(tmp_path / "empty", manifest, 2)
    result = merged(manifest, [folders[0], empty])
    missing = key_by_text(result.results.missing)
    assert list(missing) == ["b/18/cpu"]
    assert missing["b/18/cpu"].startswith("shard 2/2: ")
    run = read_run(Path(manifest.project.root) / "build/results.json")
    assert "b/18/cpu" not in key_by_text(run.by_cell())


def test_a_stale_result_is_missing(manifest: Manifest, folders: list[Path]) -> None:
    models = [manifest.find_model("a"), make_spec("b", opsets=(18,), devices=("cpu",), seed=7)]
    changed = make_manifest(*models, manifest.find_model("c"), root=manifest.project.root)
    result = merged(changed, folders)
    assert key_by_text(result.results.missing) == {
        "b/18/cpu": "shard 2/2: its manifest entry changed since it was exported"
    }


def test_a_model_without_a_shard_is_missing(manifest: Manifest, folders: list[Path]) -> None:
    new = make_spec("d", opsets=(18,), devices=("cpu",))
    more = make_manifest(*manifest.models, new, root=manifest.project.root)
    assert key_by_text(merged(more, folders).results.missing) == {
        "d/18/cpu": "no shard contains it"
    }


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (shutil.rmtree, "b/18.onnx is missing"),
        (lambda model: (model / "18.onnx").unlink(), "b/18.onnx is missing"),
        (
            lambda model: (model / "18.onnx").write_text("b of 3"),
            "b/18.onnx is not the file that was proved",
        ),
    ],
)
def test_a_result_without_its_file_is_missing(
    manifest: Manifest, folders: list[Path], spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(folders[1] / "b")
    assert key_by_text(merged(manifest, folders).results.missing) == {
        "b/18/cpu": f"shard 2/2: {reason}"
    }
    run = read_run(Path(manifest.project.root) / "build/results.json")
    assert list(key_by_text(run.by_cell())) == ["a/18/cpu", "c/18/cpu"]


def same_shard_twice(folders: list[Path], manifest: Manifest) -> list[Path]:
    return [folders[0], *folders]


def other_tools(folders: list[Path], manifest: Manifest) -> list[Path]:
    run = read_run(folders[1] / "results.json")
    other = run.model_copy(update={"tools": {**TOOLS, "torch": "2.12.0"}})
    write_json(folders[1] / "results.json", other)
    return folders


def other_count(folders: list[Path], manifest: Manifest) -> list[Path]:
    write_shard_note(folders[1], Shard(index=2, count=3), make_plan(manifest))
    return folders


def own_folder(folders: list[Path], manifest: Manifest) -> list[Path]:
    build = Path(manifest.project.root) / "build"
    build.mkdir(parents=True)
    return [*folders, build]


def other_split(folders: list[Path], manifest: Manifest) -> list[Path]:
    note = read_shard_note(folders[1]).model_copy(update={"models": ("a", "b")})
    write_json(folders[1] / "shard.json", note)
    return folders


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (same_shard_twice, ExitCode.RED, "shard 1/2 was given 2 times: "),
        (other_tools, ExitCode.RED, "other tools than .*one: torch 2.12.0 and 2.13.0"),
        (other_count, ExitCode.RED, "exports in 2 and 3 parts"),
        (other_split, ExitCode.RED, "a is in shard 1/2 and in 2/2"),
        (own_folder, ExitCode.UNREADABLE, "this project's own build folder"),
    ],
)
def test_shards_that_do_not_belong_together_are_refused(
    manifest: Manifest,
    folders: list[Path],
    spoil: Callable[[list[Path], Manifest], list[Path]],
    code: ExitCode,
    message: str,
) -> None:
    with pytest.raises(ExporterError, match=message) as caught:
        merged(manifest, spoil(folders, manifest))
    assert caught.value.exit_code is code


def test_a_shard_with_symlinks_is_refused(
    manifest: Manifest, folders: list[Path], tmp_path: Path
) -> None:
    (folders[0] / "a" / "more").symlink_to(tmp_path)
    with pytest.raises(ExporterError, match="contains symlinks"):
        merged(manifest, folders)


def unfinished(folders: list[Path], manifest: Manifest) -> list[Path]:
    (folders[1] / "shard.json").unlink()
    return folders


def no_results(folders: list[Path], manifest: Manifest) -> list[Path]:
    (folders[1] / "results.json").unlink()
    return folders


def unreadable(folders: list[Path], manifest: Manifest) -> list[Path]:
    (folders[1] / "shard.json").write_text("{")
    return folders


@pytest.mark.parametrize(
    ("spoil", "messages"),
    [
        (lambda folders, manifest: folders[:1], ["shard 2/2 is missing"]),
        (unfinished, ["two: contains no finished shard", "shard 2/2 is missing"]),
        (no_results, ["results.json: no results yet", "shard 2/2 is missing"]),
        (unreadable, ["shard.json: cannot be read", "shard 2/2 is missing"]),
    ],
)
def test_the_other_shards_are_merged_if_one_is_lost(
    manifest: Manifest,
    folders: list[Path],
    spoil: Callable[[list[Path], Manifest], list[Path]],
    messages: list[str],
) -> None:
    merged(manifest, folders)  # earlier results of this folder do not count
    result = merged(manifest, spoil(folders, manifest))
    assert result.count == 1
    for message, problem in zip(messages, result.problems, strict=True):
        assert message in problem.message
    assert key_by_text(result.results.missing) == {"b/18/cpu": "no shard contains it"}
    run = read_run(Path(manifest.project.root) / "build/results.json")
    assert list(key_by_text(run.by_cell())) == ["a/18/cpu", "c/18/cpu"]


def test_without_a_readable_shard_no_earlier_result_remains(
    manifest: Manifest, folders: list[Path]
) -> None:
    merged(manifest, folders)
    for folder in folders:
        (folder / "shard.json").unlink()
    with pytest.raises(ExporterError, match="one: contains no finished shard") as caught:
        merged(manifest, folders)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    assert not (Path(manifest.project.root) / "build/results.json").exists()


def test_the_files_of_toolchains_are_merged(manifest: Manifest, folders: list[Path]) -> None:
    old = EnvironmentDefinition(requirements=("onnxscript==0.6.2",))
    settings = manifest.project.model_copy(update={"job_environments": {"old": old}})
    manifest = manifest.model_copy(update={"project": settings})
    for folder, model in ((folders[0], "a"), (folders[0], "b"), (folders[1], "b")):
        path = folder / ".toolchains/old" / model / "18.onnx"
        path.parent.mkdir(parents=True)
        path.write_text(folder.name)
    merged(manifest, folders)
    build = Path(manifest.project.root) / "build/.toolchains/old"
    texts = {path.parent.name: path.read_text() for path in build.rglob("18.onnx")}
    assert texts == {"a": "one", "b": "two"}


ALL = Selection()


def plan(sizes: dict[str, int], selection: Selection = ALL) -> Plan:
    specs = [make_spec(id, opsets=tuple(range(10, 10 + count))) for id, count in sizes.items()]
    return make_plan(make_manifest(*specs), selection)


def shards(full: Plan, count: int) -> list[tuple[str, ...]]:
    indices = range(1, count + 1)
    return [assign_models(full, Shard(index=index, count=count)) for index in indices]


@given(
    sizes=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 12), min_size=1),
    count=st.integers(1, 10),
)
def test_every_model_is_in_one_shard(sizes: dict[str, int], count: int) -> None:
    full = plan(sizes)
    parts = shards(full, count)
    assert sorted(model for part in parts for model in part) == sorted(sizes)
    cells = [
        planned.cell
        for index in range(1, count + 1)
        for planned in select_shard(full, Shard(index=index, count=count)).selected
    ]
    assert sorted(map(str, cells)) == sorted(str(planned.cell) for planned in full.selected)
    # The order of the manifests does not matter.
    other = shards(plan(dict(reversed(sizes.items()))), count)
    assert [set(part) for part in other] == [set(part) for part in parts]


def test_the_cells_are_balanced() -> None:
    assert shards(plan({"a": 9, "b": 3, "c": 3, "d": 3}), 2) == [("a",), ("b", "c", "d")]
    assert shards(plan({"a": 1}), 3) == [("a",), (), ()]


def test_only_selected_models_are_assigned() -> None:
    full = plan({"a": 2, "b": 2}, Selection(patterns=("b",)))
    assert shards(full, 1) == [("b",)]


def test_the_note_contains_the_models_of_the_shard(tmp_path: Path) -> None:
    full, shard = plan({"a": 2, "b": 2}), Shard(index=2, count=2)
    write_shard_note(tmp_path, shard, full)
    note = read_shard_note(tmp_path)
    assert (note.shard, note.models) == (shard, ("b",))
    BuildFolder(tmp_path).shard_note.unlink()
    with pytest.raises(ExporterError, match="contains no finished shard") as caught:
        read_shard_note(tmp_path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    (tmp_path / "shard.json").write_text("{}")
    with pytest.raises(ExporterError, match="cannot be read"):
        read_shard_note(tmp_path)
