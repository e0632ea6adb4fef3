"""Which of the project's files a model was made from."""

from __future__ import annotations

from pathlib import Path

from exporter.fingerprint import file_digest
from exporter.worker.closure import loaded_sources
from exporter.worker.source import load_attribute


def test_an_import_inside_a_function_counts_once_it_ran(tmp_path: Path) -> None:
    (tmp_path / "closure_late.py").write_text("value = 1\n")
    (tmp_path / "closure_net.py").write_text(
        "def forward():\n    import closure_late\n    return closure_late.value\n"
    )
    (tmp_path / "closure_unused.py").write_text("value = 2\n")
    forward = load_attribute("closure_net.py:forward", tmp_path)
    assert [source.file for source in loaded_sources(tmp_path)] == ["closure_net.py"]
    assert forward() == 1
    sources = loaded_sources(tmp_path)
    assert [source.file for source in sources] == ["closure_late.py", "closure_net.py"]
    assert sources[0].sha256 == file_digest(tmp_path / "closure_late.py")


def test_installed_packages_and_our_own_modules_do_not_count() -> None:
    root = Path(__file__).resolve().parents[2]
    files = {source.file for source in loaded_sources(root)}
    assert "tests/worker/test_closure.py" in files
    assert not any(name.startswith("exporter/") for name in files)
    assert not any("site-packages" in name for name in files)
    assert all((root / name).is_file() for name in files)
