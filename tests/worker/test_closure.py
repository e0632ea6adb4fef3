"""Which of the project's files a model was made from."""

from __future__ import annotations

from pathlib import Path

from exporter.attributes import load_attribute
from exporter.fingerprint import file_digest, package_state
from exporter.worker.closure import loaded_sources
from exporter.worker.packages import loaded_packages


def now(folder: Path) -> Path:
    """A file that was written just now, apart from the sources."""
    mark = folder / "began"
    mark.touch()
    return mark


def test_an_import_inside_a_function_counts_once_it_ran(tmp_path: Path) -> None:
    (tmp_path / "closure_late.py").write_text("value = 1\n")
    (tmp_path / "closure_net.py").write_text(
        "def forward():\n    import closure_late\n    return closure_late.value\n"
    )
    (tmp_path / "closure_unused.py").write_text("value = 2\n")
    since = now(tmp_path)
    forward = load_attribute("closure_net.py:forward", tmp_path)
    assert [source.file for source in loaded_sources(tmp_path, since)] == ["*.py", "closure_net.py"]
    assert forward() == 1
    sources = loaded_sources(tmp_path, since)
    assert [source.file for source in sources] == ["*.py", "closure_late.py", "closure_net.py"]
    assert sources[1].sha256 == file_digest(tmp_path / "closure_late.py")


def test_installed_packages_and_our_own_modules_do_not_count(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    sources = loaded_sources(root, now(tmp_path))
    files = {source.file for source in sources if not source.file.endswith("*.py")}
    assert "tests/worker/test_closure.py" in files
    assert not any(name.startswith("exporter/") for name in files)
    assert not any("site-packages" in name for name in files)
    assert all((root / name).is_file() for name in files)


def test_what_changes_meanwhile_has_no_hash_and_so_never_holds(tmp_path: Path) -> None:
    (tmp_path / "closure_moving.py").write_text("def forward():\n    return 1\n")
    since = now(tmp_path)
    load_attribute("closure_moving.py:forward", tmp_path)
    while now(tmp_path / "..").stat().st_ctime_ns == since.stat().st_ctime_ns:
        pass  # the clock has its ticks
    (tmp_path / "closure_moving.py").write_text("def forward():\n    return 2\n")
    (source,) = (s for s in loaded_sources(tmp_path, since) if s.file == "closure_moving.py")
    assert source.sha256 == ""


def test_a_module_beside_those_that_were_loaded_changes_the_listing(tmp_path: Path) -> None:
    (tmp_path / "closure_first.py").write_text("def forward():\n    return 1\n")
    since = now(tmp_path)
    load_attribute("closure_first.py:forward", tmp_path)
    before = {s.file: s.sha256 for s in loaded_sources(tmp_path, since)}
    (tmp_path / "torch.py").write_text("")
    after = {s.file: s.sha256 for s in loaded_sources(tmp_path, since)}
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == ["*.py"]


def test_packages_are_known_by_version_and_build() -> None:
    found = loaded_packages()
    assert found["pytest"] == package_state("pytest")
    assert not {"torch", "onnx", "numpy"} & set(found)
