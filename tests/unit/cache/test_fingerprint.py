"""The fingerprint contains each setting that changes a result."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from exporter.cache import states
from exporter.cache.artifact_integrity import SourceStamps
from exporter.cache.fingerprint import (
    CurrentState,
    compute_fingerprint,
    drop_tool_parts,
    hash_device,
)
from exporter.cache.states import (
    SEARCH_PATH,
    _read_first_site_stamps,
    _read_site_stamps,
    hash_source,
    have_tools_changed,
    list_package_folders,
    read_distribution,
    read_loaded_state,
    read_package_state,
    read_search_path,
    read_source_state,
    read_tool_parts,
    read_tool_versions,
    read_variable_state,
)
from exporter.manifest import Device, Expectation, Output, Tolerance
from exporter.processes.worker_variables import TORCH_PRIVATE
from exporter.records.record import CellId, Record, Source, Status
from tests.distributions import write_distribution
from tests.unit.factory import make_record
from tests.unit.planning.test_plan import spec


def test_the_switch_of_private_functions_is_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TORCH_PRIVATE, raising=False)
    before = read_tool_parts.__wrapped__()
    monkeypatch.setenv(TORCH_PRIVATE, "none")
    after = read_tool_parts.__wrapped__()
    assert "tool.torch_private" not in before
    assert after == {**before, "tool.torch_private": "none"}


def test_a_package_of_a_toolchain_replaces_the_current_one(tmp_path: Path) -> None:
    install(tmp_path, "pydantic")
    assert read_package_state("pydantic", str(tmp_path)).startswith("1.0 ")
    assert read_package_state("pytest", str(tmp_path)) == read_package_state("pytest") != ""
    assert read_package_state("no-such-distribution", str(tmp_path)) == ""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of installed packages."""
    folder = tmp_path / "environment/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(states, "list_package_folders", lambda: (str(folder),))
    return folder


def test_the_variable_is_a_part_of_the_path(packages: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository/project"
    (tmp_path / "repository/.git").mkdir(parents=True)
    root.mkdir()
    assert read_search_path(root, "") == "no folders"
    own = states._OWN_FOLDER
    other, library = tmp_path / "other", tmp_path / "repository/library"
    for folder in (other, library):
        folder.mkdir()
    folders = (own, str(library), str(other), "")
    assert read_search_path(root, os.pathsep.join(folders)) == f"../library{os.pathsep}{other}"
    variable = os.pathsep.join(reversed(folders))
    assert read_search_path(root, variable) == f"{other}{os.pathsep}../library"


def test_an_editable_install_is_a_part_of_the_path(packages: Path, tmp_path: Path) -> None:
    first, second = (tmp_path / f"library/{name}" for name in ("src", "other"))
    for folder in (first, second):
        folder.mkdir(parents=True)
    lines = ("# a comment", "import loader; loader.install()", str(first), "inner", "")
    (packages / "editable.pth").write_text("\n".join(lines))
    (packages / ".hidden.pth").write_text("/hidden")
    root = tmp_path / "repository/project"
    assert read_search_path(root, "") == str(first)
    (packages / "editable.pth").write_text(str(second))
    assert read_search_path(root, "") == str(second)


def test_another_path_makes_a_record_stale(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    root = tmp_path / "repository/project"
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/one")
    states = {SEARCH_PATH: read_loaded_state(SEARCH_PATH, root)}
    record = make_record("net/18/cpu").model_copy(update={"packages": states})
    assert CurrentState(root, SourceStamps(root)).find_changed_package_reason(record) == ""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/two")
    reason = f"Python searches for modules in {tmp_path}/two, before in {tmp_path}/one"
    assert CurrentState(root, SourceStamps(root)).find_changed_package_reason(record) == reason


def test_the_packages_of_an_environment_below_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = str(tmp_path / "site-packages")
    monkeypatch.setattr(states, "_FIRST_PATH", (below, str(tmp_path)))
    assert below in list_package_folders()
    assert str(tmp_path) not in list_package_folders()


PARTS = {"environment": "0", "entry": "1", "checks": "2", "device": "3", "tool.torch": "2.12.1 aa"}


def stored(*sources: Source, **packages: str) -> Record:
    cell = CellId(model="net", opset=17, device="cpu")
    return Record(
        cell=cell, status=Status.PASS, fingerprint=PARTS, sources=sources, packages=packages
    )


def explain(root: Path, record: Record) -> str:
    return CurrentState(root, SourceStamps(root)).find_staleness_reason(record, PARTS)


@pytest.mark.parametrize(
    ("part", "now", "reason"),
    [
        ("entry", "other", "its manifest entry changed"),
        ("checks", "other", "the promises of its checks changed"),
        ("device", "other", "the definition of its device changed"),
        ("environment", "other", "the environment variables or the sandbox of workers changed"),
        ("tool.torch", "2.13.0 bb", "torch 2.12.1 -> 2.13.0"),
        ("tool.torch", "2.12.1 bb", "torch 2.12.1 is another build"),
        ("tool.torch", "", "torch 2.12.1 -> missing"),
        ("tool.onnx", "1.2 cc", "onnx missing -> 1.2"),
    ],
)
def test_each_changed_part_is_named(tmp_path: Path, part: str, now: str, reason: str) -> None:
    assert (
        CurrentState(tmp_path, SourceStamps(tmp_path)).find_staleness_reason(
            stored(), PARTS | {part: now}
        )
        == reason
    )


def test_a_changed_or_missing_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("x = 1\n")
    record = stored(Source(file="net.py", state=hash_source(file)))
    assert explain(tmp_path, record) == ""
    moving = stored(Source(file="net.py", state=""))
    assert explain(tmp_path, moving) == "net.py changed while it was exported"
    file.write_text("x = 2\n")
    assert explain(tmp_path, record) == "net.py changed"
    file.unlink()
    assert explain(tmp_path, record) == "net.py is missing"


def test_a_new_file_a_link_and_a_listing_are_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.json").symlink_to("data/a.json")
    names = ("absent.json", "link.json", "data/*", "data")
    sources = [Source(file=name, state=read_source_state(tmp_path / name)) for name in names]
    record = stored(*sources)
    assert explain(tmp_path, record) == ""
    (tmp_path / "data/a.json").touch()
    assert explain(tmp_path, record) == "data has other files"
    (tmp_path / "link.json").unlink()
    (tmp_path / "link.json").symlink_to("data/b.json")
    assert explain(tmp_path, record) == "link.json changed"
    (tmp_path / "absent.json").touch()
    assert explain(tmp_path, record) == "absent.json was added"


def test_a_new_module_next_to_the_sources_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/net.py").write_text("")
    record = stored(Source(file="models/*.py", state=hash_source(tmp_path / "models/*.py")))
    assert explain(tmp_path, record) == ""
    (tmp_path / "models/notes.txt").write_text("")
    assert explain(tmp_path, record) == ""
    (tmp_path / "models/torch.py").write_text("")
    assert explain(tmp_path, record) == "models has other modules"
    listing = "models/*.py?net,torch"
    searched = stored(Source(file=listing, state=read_source_state(tmp_path / listing)))
    (tmp_path / "models/other.py").touch()
    assert explain(tmp_path, searched) == ""
    (tmp_path / "models/net.py").unlink()
    assert explain(tmp_path, searched) == "models/net.py is missing"
    (tmp_path / "models/net").mkdir()
    assert explain(tmp_path, searched) == "models/net was added"


def test_a_package_that_replaces_a_module_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("K = 1\n")
    before = hash_source(tmp_path / "*.py")
    (tmp_path / "helper").mkdir()
    assert (
        hash_source(tmp_path / "*.py") == before
    )  # Python prefers a module to a folder without `__init__.py`
    (tmp_path / "helper/__init__.py").write_text("K = 2\n")
    with_package = hash_source(tmp_path / "*.py")
    (tmp_path / "helper.cpython-311-x86_64-linux-gnu.so").touch()
    assert len({before, with_package, hash_source(tmp_path / "*.py")}) == 3


@pytest.mark.parametrize(
    ("update", "module", "count"),
    [
        ({"source": "acme.nets:Net"}, "", 1),
        ({"source": "acme.nets:Net"}, "manifests/in/acme.py", 3),  # an import finds it first
        ({"source": "acme.nets:Net"}, "manifests/in/data/labels.txt", 3),  # of a namespace package
        ({"source": "acme.nets:Net"}, "manifests/acme.py", 2),
        ({"source": "nets.py:Net"}, "", 4),
        ({"source": "acme.nets:Net", "weights": "net.pt"}, "", 4),
    ],
)
def test_the_folder_of_an_entry_counts_if_paths_or_imports_begin_there(
    tmp_path: Path, update: dict[str, Any], module: str, count: int
) -> None:
    paths = ("manifests/a.toml", "manifests/in/a.toml", "manifests/of/a.toml", "models/a.toml")
    for path in filter(None, (*paths, module)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    digests = {
        compute_fingerprint(spec(manifest=path, **update), root=tmp_path)["entry"]
        for path in (*paths, "manifests/b.toml")
    }
    assert len(digests) == count


def test_a_variable_that_the_model_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SET", "1")
    states = {name: read_variable_state(name) for name in ("MY_SET", "MY_ABSENT")}
    record = stored().model_copy(update={"variables": states})
    assert explain(tmp_path, record) == ""
    monkeypatch.setenv("MY_ABSENT", "")
    assert explain(tmp_path, record) == "the environment variable MY_ABSENT changed"
    monkeypatch.delenv("MY_ABSENT")
    monkeypatch.setenv("MY_SET", "2")
    assert explain(tmp_path, record) == "the environment variable MY_SET changed"


def test_a_changed_package_is_named(tmp_path: Path) -> None:
    today = CurrentState(tmp_path, SourceStamps(tmp_path))
    assert today.find_changed_package_reason(stored(pytest=read_package_state("pytest"))) == ""
    version = read_package_state("pytest").split(" ")[0]
    assert today.find_changed_package_reason(stored(pytest="1.0 ff")) == f"pytest 1.0 -> {version}"
    assert today.find_changed_package_reason(stored(gone="1.0 ff")) == "gone 1.0 -> missing"


def test_both_states_of_a_different_package_or_variable_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_ABSENT", raising=False)
    current = read_package_state("pytest")
    same = stored(pytest=current).model_copy(update={"variables": {"MY_ABSENT": "missing"}})
    assert CurrentState(tmp_path, SourceStamps(tmp_path)).list_differences(same) == []
    other = stored(pytest="1.0 ff").model_copy(update={"variables": {"MY_ABSENT": "ab"}})
    assert CurrentState(tmp_path, SourceStamps(tmp_path)).list_differences(other) == [
        f"pytest `1.0 ff`, now `{current}`",
        "MY_ABSENT `ab`, now `missing`",
    ]


def test_a_record_without_fingerprint_is_stale(tmp_path: Path) -> None:
    bare = Record(cell=stored().cell, status=Status.PASS)
    assert CurrentState(tmp_path, SourceStamps(tmp_path)).find_staleness_reason(bare, PARTS)


def test_the_fingerprint_changes_with_the_proved_settings() -> None:
    before = compute_fingerprint(spec())
    for same in (
        spec(description="more words", tags=("a",), line=9),
        spec(expect=(Expectation(reason="r"),), timeout=5.0),
        spec(opsets=(17, 18, 19)),
        spec(id="other"),  # cells are stored by it
    ):
        assert compute_fingerprint(same) == before
    for other in (spec(seed=1), spec(mode="train"), spec(init={"width": 2})):
        assert compute_fingerprint(other)["entry"] != before["entry"]


def test_a_tolerance_changes_the_part_of_the_checks_only() -> None:
    before = compute_fingerprint(spec())
    strict = Tolerance(atol=1e-9)
    outputs = (Output(name="y", shape=("batch", 4), tolerance=strict),)
    plain = (Output(name="y", shape=("batch", 4)),)
    assert compute_fingerprint(spec(tolerance=strict))["entry"] == before["entry"]
    assert compute_fingerprint(spec(tolerance=strict))["checks"] != before["checks"]
    one, other = (
        compute_fingerprint(spec(outputs=outputs)),
        compute_fingerprint(spec(outputs=plain)),
    )
    assert one["entry"] == other["entry"]
    assert one["checks"] != other["checks"]


def test_devices_and_tools_have_their_own_parts() -> None:
    cpu = Device(name="cpu", runtime="onnxruntime")
    assert hash_device(cpu) != hash_device(cpu.model_copy(update={"strict": True}))
    parts = compute_fingerprint(spec())
    assert {"tool.torch", "tool.python", "tool.exporter"} <= set(parts)
    assert set(drop_tool_parts(parts)) == {"entry", "checks", "environment"}


def test_versions_are_read_without_an_import() -> None:
    tools = read_tool_versions()
    assert {"python", "platform", "torch", "onnx", "onnxruntime", "exporter"} <= set(tools)
    assert all(tools.values())


def install(site: Path, name: str, *lines: str) -> str:
    write_distribution(site, name, RECORD="\n".join(lines))
    return read_distribution.__wrapped__(name, str(site))[0]


def test_a_wheel_is_the_same_in_every_environment_and_another_build_is_not(tmp_path: Path) -> None:
    wheel = ("made_up/__init__.py,sha256=aa,5", "made_up/core.so,sha256=bb,9")
    info = "made_up-1.0.dist-info"
    one = install(tmp_path / "one", "made_up", *wheel, "../../../bin/run,sha256=cc,200")
    added = (f"{info}/INSTALLER,sha256=dd,4", f"{info}/REQUESTED,,", f"{info}/RECORD,,")
    compiled = "made_up/__pycache__/__init__.cpython-311.pyc,,"
    script = "../../../bin/run,sha256=ee,203"
    two = install(tmp_path / "two", "made_up", compiled, script, *added, *reversed(wheel))
    assert one == two
    assert one.startswith("1.0 ")
    cuda = install(tmp_path / "three", "made_up", wheel[0], "made_up/core.so,sha256=ff,90")
    assert cuda != one
    current = f"{info}/direct_url.json,sha256=gg,70"
    assert install(tmp_path / "four", "made_up", *wheel, current) != one, (
        "an editable installation belongs to one checkout"
    )


def test_a_reinstalled_tool_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests read the version with other folders on `sys.path`, and write to such folders.
    monkeypatch.setattr("exporter.cache.states.read_exporter_state", cache(lambda: "one"))
    stamps = _read_first_site_stamps()
    assert all(read_package_state(name) for name in ("onnx", "numpy"))
    monkeypatch.setattr("exporter.cache.states._read_site_stamps", lambda: stamps)
    monkeypatch.setattr("exporter.cache.states.have_installed_files_changed", lambda: False)
    monkeypatch.setattr("exporter.cache.states.list_wheel_files", lambda files: ("another", ""))
    assert not have_tools_changed(), "the folder of the packages is unchanged"
    monkeypatch.setattr("exporter.cache.states._read_site_stamps", lambda: (1, 2))
    assert have_tools_changed()
    monkeypatch.setattr("exporter.cache.states._read_site_stamps", lambda: stamps)
    monkeypatch.setattr("exporter.cache.states.have_installed_files_changed", lambda: True)
    assert have_tools_changed(), "a file of a tool was edited"


def test_an_installation_changes_the_site_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "none")])
    before = _read_site_stamps()
    (tmp_path / "made_up-1.0.dist-info").mkdir()
    assert _read_site_stamps() != before


def test_another_sandbox_makes_results_stale_in_both_directions() -> None:
    plain = compute_fingerprint(spec())
    restricted = compute_fingerprint(spec(), sandbox="landlock")
    assert compute_fingerprint(spec(), sandbox="none") == plain
    assert {part for part in plain if plain[part] != restricted[part]} == {"environment"}


def test_all_distributions_that_own_the_module_of_a_tool_are_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(name: str, module: str) -> str:
        install(tmp_path, name, f"{name}.txt,,", f"{module}/__init__.py,sha256=0,1")
        states.read_distribution.cache_clear()
        states._list_other_owners.cache_clear()
        return states.read_tool_state("onnxruntime")

    monkeypatch.setattr(states, "list_package_folders", lambda: (str(tmp_path),))
    monkeypatch.setattr(states, "list_metadata_folders", lambda: (str(tmp_path),))
    first = add("onnxruntime", "onnxruntime")
    assert first == read_package_state("onnxruntime")
    assert add("other", "onnxscript/onnxruntime") == first
    both = add("onnxruntime_gpu", "onnxruntime")
    assert both != first
    assert both.startswith("1.0 ")
    shutil.rmtree(tmp_path / "onnxruntime-1.0.dist-info")
    assert add("unrelated", "module") not in (first, both, "")
    monkeypatch.undo()
    states.read_distribution.cache_clear()
    states._list_other_owners.cache_clear()


def test_the_place_of_the_project_in_the_path_counts_if_it_replaces_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "list_package_folders", tuple)
    path = os.pathsep.join((str(tmp_path), f"{tmp_path}/missing", str(tmp_path)))
    assert read_search_path(tmp_path, path) == read_search_path(tmp_path, "") == "no folders"
    (tmp_path / "random.py").touch()
    assert read_search_path(tmp_path, path) == "."
