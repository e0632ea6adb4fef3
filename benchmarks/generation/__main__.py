"""Add tiny models of transformers and export them: `python -m benchmarks.generation [NAME ...]`.

Output: a table with the lines that `exporter add` wrote for each model, its files, and the verdict
at each opset; below it the reason of each red cell, and of each model without an entry. It needs
the package transformers, and a minute for each model.

`--two-files` compares the CPU time of Llama's decoder with that of two entries, one for prompts and
one for further tokens.
"""

from __future__ import annotations

import ast
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.records.record import Record, read_run

NETS = Path(__file__).with_name("nets.py")
OPSETS = (18, 20, 23)


def list_names() -> list[str]:
    """Return the names of the models, without an import of transformers."""
    functions = ast.parse(NETS.read_text(encoding="utf-8")).body
    names = (each.name for each in functions if isinstance(each, ast.FunctionDef))
    return [name for name in names if not name.startswith("_")]


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the exporter in a project."""
    command = (sys.executable, "-m", "exporter", *arguments)
    return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)


def show(name: str, root: Path) -> tuple[str, list[str]]:
    """Return the row of a model, and the reasons of its red cells."""
    (root / "manifests").mkdir(parents=True)
    shutil.copy(NETS, root / "manifests/nets.py")
    added = run(root, "add", f"manifests/nets.py:{name}", "--yes")
    entry = root / f"manifests/{name}.toml"
    if not entry.exists():
        return f"| {name} | none |||", [added.stderr.strip()]
    text = entry.read_text(encoding="utf-8")
    written = [line for line in text.splitlines()[2:] if line]
    opsets = ", ".join(map(str, OPSETS))
    entry.write_text(text.replace("opsets = 18", f"opsets = [{opsets}]"), encoding="utf-8")
    exported = run(root, "export", "--no-store")
    results = root / "build/results.json"
    records = list(read_run(results).records) if results.exists() else []
    models = list(dict.fromkeys(record.cell.model for record in records))
    verdicts = [
        "; ".join(f"{each.cell.opset} {each.status}" for each in records if each.cell.model == id)
        for id in models
    ]
    reasons = [f"{r.cell}: {r.check or r.stage}: {r.message}" for r in _list_red(records)]
    reasons += [] if records else [exported.stdout + exported.stderr]
    row = f"| {name} | {len(written)} | {' + '.join(models)} | {'<br>'.join(verdicts)} |"
    return row, reasons


def _list_red(records: Sequence[Record]) -> Iterator[Record]:
    yield from (record for record in records if not record.status.is_green)


def compare_two_files(root: Path) -> list[str]:
    """Return the CPU seconds of one file with its loop, and of two files without one."""
    for name in ("nets.py", "two_files.py", "two_files.toml"):
        (root / "manifests").mkdir(parents=True, exist_ok=True)
        shutil.copy(NETS.with_name(name), root / "manifests" / name)
    run(root, "add", "manifests/nets.py:llama", "--yes")
    lines: list[str] = []
    seconds: list[float] = []
    for models in (("llama",), ("llama-prefill", "llama-decode")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        exported = run(root, "export", "--no-store", *models)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        verdict = "pass" if exported.returncode == 0 else exported.stdout + exported.stderr
        lines.append(f"{' + '.join(models)}: {verdict}, {seconds[-1]:.1f} s of CPU")
    return [*lines, f"ratio: {seconds[0] / seconds[1]:.2f}"]


def main(names: Sequence[str]) -> int:
    """Print the table of the models; 1 if a name is unknown."""
    if names == ["--two-files"]:
        with TemporaryDirectory() as folder:
            print(*compare_two_files(Path(folder)), sep="\n")
        return 0
    known = list_names()
    if unknown := [name for name in names if name not in known]:
        print(f"{unknown[0]}: no such model; use one of {', '.join(known)}", file=sys.stderr)
        return 1
    reasons: list[str] = []
    print("| model | lines | entries | verdicts |\n|---|--:|---|---|")
    for name in names or known:
        with TemporaryDirectory() as folder:
            row, found = show(name, Path(folder))
        print(row, flush=True)
        reasons += [f"- {name}: {each}" for each in found]
    print("", *reasons, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
