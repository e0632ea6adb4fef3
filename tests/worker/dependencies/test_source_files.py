"""Files of the project that a model was built from."""

from __future__ import annotations

import time
from pathlib import Path

from exporter.cache.fingerprint import hash_source, read_loaded_state, read_package_state
from exporter.core.import_object import load_attribute
from exporter.worker.dependencies.distributions import list_loaded_packages
from exporter.worker.dependencies.source_files import (
    JobStart,
    digest_external_libraries,
    digest_loaded_sources,
)


def start_job(folder: Path) -> JobStart:
    """Start a job now."""
    mark = folder / "begin"
    mark.touch()
    return JobStart.measure(mark)


def test_an_import_inside_a_function_is_listed_after_its_run(tmp_path: Path) -> None:
    (tmp_path / "closure_late.py").write_text("value = 1\n")
    (tmp_path / "closure_net.py").write_text(
        "def forward():\n    import closure_late\n    return closure_late.value\n"
    )
    (tmp_path / "closure_unused.py").write_text("value = 2\n")
    since = start_job(tmp_path)
    forward = load_attribute("closure_net.py:forward", tmp_path)
    assert [source.file for source in digest_loaded_sources(tmp_path, since)] == [
        "*.py",
        "closure_net.py",
    ]
    assert forward() == 1
    sources = digest_loaded_sources(tmp_path, since)
    assert [source.file for source in sources] == ["*.py", "closure_late.py", "closure_net.py"]
    assert sources[1].sha256 == hash_source(tmp_path / "closure_late.py")


def test_installed_packages_and_the_exporter_are_omitted(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    sources = digest_loaded_sources(root, start_job(tmp_path))
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
    (source,) = (s for s in digest_loaded_sources(tmp_path, since) if s.file == "closure_moving.py")
    assert source.sha256 == ""


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
    hashes = {s.file: s.sha256 for s in digest_loaded_sources(tmp_path, since)}
    assert hashes["closure_hidden.py"] == ""
    assert hashes["closure_still.py"] == hash_source(tmp_path / "closure_still.py")


def test_an_external_library_has_a_hash(tmp_path: Path) -> None:
    root, library = tmp_path / "project", tmp_path / "elsewhere/libfoo.so"
    for path in (root, library.parent):
        path.mkdir()
    library.write_bytes(b"kernels")
    states = digest_external_libraries(root, start_job(tmp_path), [library])
    assert states == {"../elsewhere/libfoo.so": f"file {hash_source(library)}"}
    assert read_loaded_state("../elsewhere/libfoo.so", root) == states["../elsewhere/libfoo.so"]
    since = start_job(tmp_path)
    while start_job(tmp_path / "..").changed == since.changed:
        pass
    library.write_bytes(b"others")
    assert digest_external_libraries(root, since, [library]) == {"../elsewhere/libfoo.so": ""}


def test_a_new_module_next_to_loaded_ones_changes_the_listing(tmp_path: Path) -> None:
    (tmp_path / "closure_first.py").write_text("def forward():\n    return 1\n")
    since = start_job(tmp_path)
    load_attribute("closure_first.py:forward", tmp_path)
    before = {s.file: s.sha256 for s in digest_loaded_sources(tmp_path, since)}
    (tmp_path / "closure_beside.py").write_text("")
    after = {s.file: s.sha256 for s in digest_loaded_sources(tmp_path, since)}
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == ["*.py"]


def test_packages_have_version_and_build() -> None:
    packages = list_loaded_packages()
    assert packages["pytest"] == read_package_state("pytest")
    assert not {"torch", "onnx", "numpy"} & set(packages)
