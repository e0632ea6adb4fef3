"""Files of the project that a model was built from."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from exporter.cache import states
from exporter.cache.code_blocks import digest_blocks
from exporter.cache.installed_files import list_recorded_files
from exporter.cache.states import (
    compare_modules,
    hash_source,
    read_loaded_state,
    read_package_state,
    read_source_state,
)
from exporter.core import import_object
from exporter.core.import_object import load_attribute
from exporter.records.record import Source
from exporter.worker.dependencies import packages as package_states
from exporter.worker.dependencies import source_files
from exporter.worker.dependencies.executed_code import ExecutedCode
from exporter.worker.dependencies.opened_files import FileAccesses
from exporter.worker.dependencies.packages import list_loaded_packages
from exporter.worker.dependencies.source_files import (
    Dependencies,
    Group,
    JobStart,
    classify_path,
    digest_dependencies,
    resolve_path,
)
from tests.distributions import write_distribution


@pytest.fixture(autouse=True)
def no_executed_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of another test in this process may have begun to record the blocks that run."""
    monkeypatch.setattr(source_files, "EXECUTED", ExecutedCode())


def start_job(folder: Path) -> JobStart:
    mark = folder / "begin"
    mark.touch()
    return JobStart.measure(mark)


def digest(
    root: Path,
    since: JobStart,
    *,
    written: frozenset[str] = frozenset(),
    own: frozenset[str] = frozenset(),
    back: frozenset[str] = frozenset(),
    **used: tuple[str, ...],
) -> Dependencies:
    """Return the dependencies of a job in the folder `build/job`."""
    accesses = FileAccesses(written=written, read_back=back, listed_by_project=own, **used)
    return digest_dependencies(root, since, accesses, ignored=[root / "build/job"])


def digest_modules(root: Path, since: JobStart) -> tuple[Source, ...]:
    return digest(root, since).sources


def test_an_import_inside_a_function_is_listed_after_its_run(tmp_path: Path) -> None:
    (tmp_path / "closure_late.py").write_text("value = 1\n")
    (tmp_path / "closure_net.py").write_text(
        "def forward():\n    import closure_late\n    return closure_late.value\n"
    )
    (tmp_path / "closure_unused.py").write_text("value = 2\n")
    since = start_job(tmp_path)
    forward = load_attribute("closure_net.py:forward", tmp_path)
    assert [source.file for source in digest_modules(tmp_path, since)] == ["closure_net.py"]
    assert forward() == 1
    sources = digest_modules(tmp_path, since)
    assert [source.file for source in sources] == ["closure_late.py", "closure_net.py"]
    assert sources[0].state == hash_source(tmp_path / "closure_late.py")


@pytest.mark.parametrize("parent", ["project", ".git/checkouts/project"])
def test_files_of_git_are_no_dependencies(tmp_path: Path, parent: str) -> None:
    """`git describe --dirty` writes the index, so a model that asks for it had no result."""
    root = tmp_path / parent
    names = (".git/index", ".git/refs/heads/main", "weights.git/a.bin")
    for path in (root / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    read = tuple(str(root / name) for name in names)
    listed = (str(root / ".git/refs"),)
    found = digest(root, start_job(root), read=read, listed=listed)
    files = [each.file for each in found.sources]
    assert [name for name in files if "git" in name] == ["weights.git/a.bin"]


@pytest.mark.parametrize("reader", ["", "of_version.py", "of_version.txt"])
def test_a_version_counts_if_a_loaded_source_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    file = tmp_path / "its_version.py"
    file.write_text("__version__ = '1'\n")
    if reader:
        (tmp_path / reader).write_text("def unused(): return its_version.__version__\n")
    blocks = {str(file): dict(digest_blocks(file.read_bytes()))}
    monkeypatch.setattr(source_files.EXECUTED, "list_blocks", lambda: blocks)
    # Otherwise the modules of this test count.
    monkeypatch.setattr(source_files, "list_module_files", lambda: [str(file)])
    read = tuple(map(str, tmp_path.glob("of_version.*")))
    dependencies = digest_dependencies(
        tmp_path, start_job(tmp_path), FileAccesses(read=read), ignored=(), text=""
    )
    state = {each.file: each.state for each in dependencies.sources}[file.name]
    file.write_text("__version__ = '2'\n")
    assert (read_source_state(file, state) == state) is (reader != "of_version.py")


def test_installed_packages_and_the_exporter_are_omitted(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    sources = digest_modules(root, start_job(tmp_path))
    files = {source.file for source in sources if not source.file.endswith("*.py")}
    assert "tests/worker/dependencies/test_source_files.py" in files
    assert not any(name.startswith("exporter/") for name in files)
    assert not any("site-packages" in name for name in files)
    assert all((root / name).is_file() for name in files)


def test_a_file_that_changes_during_the_job_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "closure_moving.py").write_text("def forward():\n    return 1\n")
    since = start_job(tmp_path)
    load_attribute("closure_moving.py:forward", tmp_path)
    while start_job(tmp_path / "..").changed == since.changed:
        pass  # the clock of the file system has ticks
    (tmp_path / "closure_moving.py").write_text("def forward():\n    return 2\n")
    (source,) = (s for s in digest_modules(tmp_path, since) if s.file == "closure_moving.py")
    assert source.state == ""


def test_a_clock_that_was_set_back_hides_no_change(tmp_path: Path) -> None:
    for name in ("closure_still", "closure_hidden"):
        (tmp_path / f"{name}.py").write_text("def forward():\n    return 1\n")
        load_attribute(f"{name}.py:forward", tmp_path)
    time.sleep(0.5)
    begin = start_job(tmp_path)
    ahead = 300_000_000
    since = JobStart(changed=begin.changed + ahead, offset=begin.offset + ahead)
    time.sleep(0.1)
    (tmp_path / "closure_hidden.py").write_text("def forward():\n    return 2\n")
    hashes = {s.file: s.state for s in digest_modules(tmp_path, since)}
    assert hashes["closure_hidden.py"] == ""
    assert hashes["closure_still.py"] == hash_source(tmp_path / "closure_still.py")


def test_an_external_file_has_a_state(tmp_path: Path) -> None:
    root, library = tmp_path / "project", tmp_path / "elsewhere/libfoo.so"
    for path in (root, library.parent):
        path.mkdir()
    library.write_bytes(b"kernels")
    external = digest(root, start_job(tmp_path), read=(str(library),)).external
    assert external["../elsewhere/libfoo.so"] == f"file {hash_source(library)}"
    assert read_loaded_state("../elsewhere/libfoo.so", root) == external["../elsewhere/libfoo.so"]
    since = start_job(tmp_path)
    while start_job(tmp_path / "..").changed == since.changed:
        pass
    library.write_bytes(b"others")
    assert digest(root, since, read=(str(library),)).external["../elsewhere/libfoo.so"] == ""


def test_files_of_the_job_and_of_the_system_are_omitted(tmp_path: Path) -> None:
    (tmp_path / "build/job").mkdir(parents=True)
    for name in ("build/job/18.onnx", "build/other.onnx"):
        (tmp_path / name).touch()
    paths = ("/etc/hosts", f"{tmp_path}/build/job/18.onnx", f"{tmp_path}/build/other.onnx")
    states = digest(tmp_path, start_job(tmp_path), read=paths, tested=paths)
    names = {source.file for source in states.sources if not source.file.endswith("*.py")}
    assert names == {"build/other.onnx"}
    assert not any("etc/hosts" in name for name in states.external)


def test_folders_above_the_job_are_omitted(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "build/job").mkdir(parents=True)
    (root / "data").mkdir()
    tested = tuple(str(root / name) for name in ("build", "build/job", "data"))
    assert digest(root, start_job(root), tested=tested).sources == (
        Source(file="data", state="folder"),
    )


def test_a_module_in_an_archive_depends_on_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    for archive in (root / "inner.zip", tmp_path / "outer.zip"):
        with ZipFile(archive, "w") as file:
            file.writestr(f"closure_{archive.stem}/__init__.py", "")
            file.writestr(f"closure_{archive.stem}/net.py", "def forward():\n    return 1\n")
        monkeypatch.syspath_prepend(str(archive))
    since = start_job(tmp_path)
    for name in ("closure_inner", "closure_outer"):
        assert load_attribute(f"{name}.net:forward", root)() == 1
    dependencies = digest(root, since)
    inner, outer = hash_source(root / "inner.zip"), hash_source(tmp_path / "outer.zip")
    assert dependencies.sources == (Source(file="inner.zip", state=inner),)
    assert dependencies.external["../outer.zip"] == f"file {outer}"
    assert not [name for name in dependencies.external if "closure_outer" in name]


def test_an_archive_that_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "renewed.zip"
    monkeypatch.syspath_prepend(str(archive))
    for names in (("renewed_first",), ("renewed_second", "renewed_first")):
        with ZipFile(archive, "w") as file:
            for name in names:
                file.writestr(f"{name}.py", f"VALUE = {len(names)}\n")
        monkeypatch.setattr("sys.path_hooks", [*sys.path_hooks[1:]])  # as in a new worker
        assert load_attribute(f"{names[0]}:VALUE", tmp_path) == len(names)


def test_paths_that_do_not_exist_are_dependencies(tmp_path: Path) -> None:
    paths = (f"{tmp_path}/absent.json", f"{tmp_path}/none/absent.json")
    for accesses in ({"read": paths}, {"tested": paths}):
        sources = digest(tmp_path, start_job(tmp_path), **accesses).sources
        states = {source.file: source.state for source in sources}
        assert states["absent.json"] == states["none/absent.json"] == "missing"
        assert read_source_state(tmp_path / "absent.json") == "missing"
    (tmp_path / "absent.json").touch()
    assert read_source_state(tmp_path / "absent.json") not in ("", "missing")


def test_a_file_that_the_job_wrote_first_has_its_last_state(tmp_path: Path) -> None:
    since = start_job(tmp_path)
    while start_job(tmp_path / "..").changed == since.changed:
        pass
    (tmp_path / "cache.bin").write_bytes(b"1")
    path = f"{tmp_path}/cache.bin"
    written = frozenset({path})
    sources = digest(tmp_path, since, tested=(path,), written=written).sources
    states = {source.file: source.state for source in sources}
    assert states["cache.bin"] == hash_source(tmp_path / "cache.bin")
    (tmp_path / "cache.bin").unlink()
    sources = digest(tmp_path, since, tested=(path,), written=written).sources
    assert "cache.bin" not in {source.file for source in sources}


def test_a_file_outside_counts_if_the_job_looked_for_it_and_created_it(tmp_path: Path) -> None:
    root, file = tmp_path / "project", tmp_path / "own.txt"
    root.mkdir()
    since = start_job(root)
    file.write_text("1")
    names = frozenset({str(file)})

    def find_state(*tested: str, back: frozenset[str] = names) -> str | None:
        found = digest(root, since, tested=tested, written=names, back=back)
        return found.external.get("../own.txt")

    assert find_state(str(file)) == f"file {hash_source(file)}"
    assert find_state() is None  # each job writes it again
    assert find_state(str(file), back=frozenset()) is None  # such as a log
    file.unlink()
    assert find_state(str(file)) is None


def test_listings_contain_all_names_or_modules(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    since = start_job(tmp_path)

    def list_states() -> dict[str, str]:
        sources = digest(
            tmp_path, since, listed=(f"{tmp_path}/data",), searched=(str(tmp_path),)
        ).sources
        return {source.file: source.state for source in sources}

    before = list_states()
    (tmp_path / "data/new.txt").touch()
    (tmp_path / "notes.txt").touch()
    after = list_states()
    assert [name for name in before if before[name] != after[name]] == ["data/*"]
    (tmp_path / "torch.py").touch()
    assert [name for name in before if list_states()[name] != after[name]] == ["*.py"]


def test_a_listing_outside_counts_if_the_project_requested_it(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "one").write_text("")
    listed = (str(outside), f"{tmp_path}/removed")
    since = start_job(tmp_path)
    external = digest(root, since, listed=listed, own=frozenset(listed)).external
    (name,) = (name for name in external if name.endswith("/*"))
    assert name.endswith("outside/*")
    assert external[name] == read_loaded_state(name, root)
    (outside / "two").write_text("")
    assert external[name] != read_loaded_state(name, root)
    others = digest(root, since, listed=listed).external
    assert not [name for name in others if name.endswith("/*")]


def test_modules_of_other_programs_in_a_shared_folder_do_not_count(tmp_path: Path) -> None:
    root, library, shared = (tmp_path / name for name in ("project", "library", "shared"))
    for folder in (root, library, shared):
        folder.mkdir()
    shared.chmod(0o1777)  # as `/tmp`
    (shared / "used.py").touch()
    searched = (str(library), str(shared))
    since = start_job(tmp_path)
    external = digest(root, since, searched=searched, read=(f"{shared}/used.py",)).external
    listings = [name for name in external if name.startswith("../") and name.endswith("*.py")]
    assert listings == ["../library/*.py"]
    assert "../shared/used.py" in external


def test_names_that_are_not_utf8_are_dependencies(tmp_path: Path) -> None:
    name = os.fsdecode(b"words\xff")
    (tmp_path / name).write_text("")
    since = start_job(tmp_path)
    found = digest(tmp_path, since, read=(f"{tmp_path}/{name}",), listed=(str(tmp_path),))
    states = {source.file: source.state for source in found.sources}
    assert states["*"] == hash_source(tmp_path / "*")
    assert "words\\xff" in states
    assert all(source.to_json() for source in found.sources)


def test_a_pipe_is_never_up_to_date(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_source_state(tmp_path / "pipe") == ""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("closure_beside.py", None),  # no import searched for it
        ("conftest.py", None),
        (".#closure_first.py", None),
        ("closure_first_BACKUP_77.py", None),
        ("closure_folder/data.txt", "closure_folder/"),  # a namespace package
        ("closure_first/__init__.py", "closure_first/__init__.py"),  # it precedes the module
        ("closure_first.abi3.so", "closure_first.abi3.so"),
        ("closure_optional.py", "closure_optional.py"),
        ("closure_optional.pyc", "closure_optional.pyc"),
        ("sqlite3.py", "sqlite3.py"),  # it replaces a module that another program loaded
        ("numpy/__init__.py", "numpy/__init__.py"),
    ],
)
def test_a_new_module_is_a_change_if_an_import_can_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str | None
) -> None:
    text = "try:\n    import closure_optional\nexcept ImportError: ...\n"
    (tmp_path / "closure_first.py").write_text(f"{text}import closure_second as forward\n")
    (tmp_path / "closure_second.py").write_text(text.replace("optional", "folder"))
    monkeypatch.setattr(import_object, "SEARCHED", {})
    for module in ("closure_first", "closure_second", "closure_folder"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    since = start_job(tmp_path)
    load_attribute("closure_first.py:forward", tmp_path)
    sys.path.remove(str(tmp_path))
    searched = digest(tmp_path, since, imports=tuple(import_object.SEARCHED)).sources
    (source,) = (each for each in searched if "?" in each.file)
    names = "@,closure_first,closure_folder,closure_optional,closure_second"
    assert source == Source(
        file=f"*.py?{names}", state="modules closure_first.py,closure_second.py"
    )
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    added, _ = compare_modules(source.state, read_source_state(tmp_path / source.file))
    assert added == ([found] if found else [])


def test_a_random_edit_changes_an_import_only_if_it_changes_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the states of the searched names with new searches after 2,000 edits."""
    source = random.Random(0)
    folders = [tmp_path / "first", tmp_path / "second", tmp_path / "second/inner"]
    names = ["one", "two", "net.inner", "inner"]
    suffixes = ["", ".py", ".pyc", ".abi3.so", ".txt", ".old.py", "/__init__.py", "/data.txt"]
    folders[2].mkdir(parents=True)
    folders[0].mkdir()
    monkeypatch.setattr(import_object, "SEARCHED", searched := {})

    def find(name: str) -> tuple[object, ...]:
        finders = (import_object._make_finder(str(folder)) for folder in folders)
        specs = (finder.find_spec(name, None) for finder in finders)
        parts = []
        for spec in specs:  # as `PathFinder`
            if spec and spec.loader:
                return (spec.origin,)
            parts += list(spec.submodule_search_locations or ()) if spec else []
        return tuple(parts)

    def read_states() -> dict[str, str]:
        paths = [(str(Path(path).parent), Path(path).name) for path in searched]
        return {
            f"{at}/*.py?{name}": read_source_state(Path(f"{at}/*.py?{name}")) for at, name in paths
        }

    changes = needless = 0
    for _ in range(2_000):
        searched.clear()
        wanted = source.sample(names, 2)
        found = [find(name) for name in wanted]
        before = read_states()
        path = (
            source.choice(folders)
            / f"{source.choice(['one', 'two', 'inner'])}{source.choice(suffixes)}"
        )
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        elif not path.parent.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if path.suffix == "" else path.touch()
        folders[2].mkdir(exist_ok=True)
        after = {name: read_source_state(Path(name)) for name in before}
        is_same = [find(name) for name in wanted] == found
        assert is_same or before != after, (path, wanted)
        changes += not is_same
        needless += is_same and before != after
    assert changes > 100
    assert needless < changes / 10, needless


def test_packages_have_version_and_build() -> None:
    packages = list_loaded_packages(Path.cwd())
    assert packages["pytest"] == read_package_state("pytest")
    assert not {"torch", "onnx", "numpy"} & set(packages)


_CACHES = (
    package_states.map_module_owners,
    source_files._find_group,
    source_files._list_groups,
    source_files._list_real_package_folders,
    source_files._list_package_prefixes,
    list_recorded_files,
    states.list_metadata_folders,
    states.read_distribution,
)


def clear_caches() -> None:
    for each in _CACHES:
        each.cache_clear()


def install(folder: Path, name: str, *lines: str) -> Path:
    """Install a distribution with one module; return the folder of its metadata."""
    record = "\n".join((f"{name}.py,,", *lines))
    metadata = write_distribution(folder, name, "1.5", RECORD=record)
    (folder / f"{name}.py").write_text("")
    return metadata


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of installed packages in the initial search path."""
    folder = tmp_path / "environment/site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(states, "_FIRST_PATH", tuple(sys.path))
    clear_caches()
    yield folder
    clear_caches()


def test_a_vendored_package_is_omitted(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(packages, "outer_of_test")
    install(packages / "vendor", "inner_of_test")
    monkeypatch.setattr(sys, "path", [str(packages / "vendor"), *sys.path])
    assert "outer_of_test" not in list_loaded_packages(Path.cwd())
    for name in ("outer_of_test", "inner_of_test"):
        importlib.import_module(name)
    loaded = list_loaded_packages(Path.cwd())
    assert loaded["outer_of_test"].startswith("1.5 ")
    assert "inner_of_test" not in loaded


def test_a_package_whose_files_a_child_process_read_is_loaded(packages: Path) -> None:
    install(packages, "read_of_test")
    assert "read_of_test" not in list_loaded_packages(Path.cwd(), [f"{packages}/else_of_test.py"])
    loaded = list_loaded_packages(Path.cwd(), [f"{packages}/read_of_test.py"])
    assert loaded["read_of_test"] == read_loaded_state("read_of_test", Path.cwd())


def test_a_file_in_a_folder_of_packages_that_no_installer_listed_is_of_the_user(
    packages: Path, tmp_path: Path
) -> None:
    install(packages, "listed_of_test", "listed_data/table.json,,", "listed_data/tests/net.py,,")
    kept = (
        *("lonely_of_test.py", "space_of_test/inner.py", "space_of_test/table.json"),
        "listed_data/tests/net.py",  # edits of tests are not found otherwise
    )
    others = (
        *("listed_of_test.py", "listed_data/table.json", "_virtualenv.py", "own_of_test.pth"),
        *("space_of_test/__pycache__/inner.nbi", "listed_of_test-1.5.dist-info/more.json"),
        "torch/left.py",
    )
    for name in (*kept, *others):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    root = tmp_path / "project"
    root.mkdir()
    groups = {
        name: classify_path(f"{packages.resolve()}/{name}", str(root.resolve()))
        for name in (*kept, *others, "none_of_test.py", "space_of_test")
    }
    assert {name for name, group in groups.items() if group is Group.EXTERNAL} == set(kept)
    assert {*groups.values()} == {Group.EXTERNAL, Group.FOREIGN}


def test_metadata_that_a_build_left_in_the_project_does_not_count(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    install(packages, "built_of_test", "added.py,,")
    install(root, "built_of_test")
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])  # as the import of a model does
    (root / "built_of_test.py").unlink()
    importlib.import_module("built_of_test")
    in_worker = list_loaded_packages(root)["built_of_test"]
    monkeypatch.setattr(states, "_FIRST_PATH", (str(root), str(packages)))
    clear_caches()
    assert in_worker == read_loaded_state("built_of_test", root)
    # Another build of the installed package is still a change.
    (packages / "built_of_test-1.5.dist-info/RECORD").write_text("other.py,,")
    clear_caches()
    assert in_worker != read_loaded_state("built_of_test", root)


def test_an_editable_installation_of_the_project_has_its_place_as_its_state(
    packages: Path, tmp_path: Path
) -> None:
    states = []
    for number, place in enumerate(("main/project", "copy/project", "library")):
        name = f"editable{number}_of_test"
        url = (tmp_path / place).as_uri()
        origin = json.dumps({"url": url, "dir_info": {"editable": True}})
        (install(packages, name) / "direct_url.json").write_text(origin)
        (tmp_path / place / ".git").mkdir(parents=True)
        states.append(read_loaded_state(name, tmp_path / "main/project"))
    assert states[0] == read_loaded_state("editable1_of_test", tmp_path / "copy/project")
    # An installation of another repository keeps its version and its files.
    assert states[2].startswith("1.5 ")


def test_each_link_of_a_path_is_listed(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "v1").mkdir()
    (root / "v1/data.json").touch()
    (root / "current").symlink_to("v1")
    (root / "other").symlink_to(root / "current")
    (root / "v1/link.json").symlink_to("../v1/./data.json")
    resolved = resolve_path(f"{root}/other/../other/link.json")
    assert resolved.path == f"{root}/v1/data.json"
    assert resolved.links == (f"{root}/other", f"{root}/current", f"{root}/v1/link.json")


def test_a_missing_file_and_a_circular_link_have_a_path(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("c/../a")
    (root / "c").mkdir()
    assert resolve_path(f"{root}/none/x.json").path == f"{root}/none/x.json"
    assert set(resolve_path(f"{root}/a/x.json").links) == {f"{root}/a", f"{root}/b"}


def test_a_fork_has_the_states_of_the_loaded_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    states.read_distribution.cache_clear()
    package_states.preload_states()
    monkeypatch.setattr(states, "distributions", lambda **_: pytest.fail("read again"))
    assert "pytest" in list_loaded_packages(Path.cwd())
