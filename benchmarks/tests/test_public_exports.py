"""The page docs/public-exports.md states what the program compares."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import public_exports
from benchmarks.public_exports import EXPORTS, PublicExport, extract, run

PAGE = (Path(__file__).parents[2] / "docs/public-exports.md").read_text("utf-8")


@pytest.mark.parametrize("name", EXPORTS)
def test_the_page_names_the_commit_and_what_it_shows(name: str) -> None:
    export = EXPORTS[name]
    assert f"github.com/{export.repository}/tree/{export.commit}" in PAGE
    assert any(text in PAGE for text in export.expected)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """Return a folder of repositories with one script that prints its weights."""
    repository = tmp_path / "mirror/acme+net/repo"
    repository.mkdir(parents=True)
    (repository / "export.py").write_text("print('wrong', open('weights').read())\n")
    (repository / "other.py").write_text("")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(("git", "-C", str(repository), *words), check=True)
    return tmp_path / "mirror"


def test_a_script_of_a_commit_is_edited_and_run(
    tmp_path: Path,
    mirror: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = ("git", "-C", str(mirror / "acme+net/repo"), "rev-parse", "HEAD")
    commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    export = PublicExport(
        repository="acme/net",
        commit=commit,
        paths=("export.py",),
        edits=(("export.py", "wrong", "right"),),
        weights="open('weights', 'w').write('7')",
        commands=(("export.py",),),
        expected=("right 7", "right 8"),
    )
    extract(export, tmp_path / "net", mirror)
    assert not (tmp_path / "net/other.py").exists()
    assert "right 7" in run(export, tmp_path / "net")
    monkeypatch.setattr(public_exports, "EXPORTS", {"net": export})
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path / "out"), "--mirror", str(mirror)])
    assert public_exports.main() == 1
    output = capsys.readouterr().out.splitlines()
    assert output == ["net: as stated: right 7", "net: NOT SHOWN: right 8"]
