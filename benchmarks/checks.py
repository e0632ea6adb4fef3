"""Measure the seconds of the checks next to the seconds of the export.

Input: `python -m benchmarks.checks [--models GLOB ...] [--opsets N ...] [--thorough] [--table]`.
Each model is exported by its own worker, as in a real run, on the CPU. Output: for each model the
seconds of the export, and the seconds and shares of PyTorch's reference, loading and each check.
One run measures both, so the shares are valid on a busy machine. `--table` writes them as
markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.jobs import Job, JobFolder, OpsetJob, write_json
from exporter.manifest import Manifest, ModelSpec, load_project
from exporter.planning.plan import choose_route
from exporter.processes import make_worker_environment
from exporter.records.record import Record

ROOT = Path(__file__).resolve().parents[1]
#: The stages of the export; the others prove it.
_EXPORT = ("source", "capture", "convert")
#: Shorter models do not count for the aim, because a fixed cost of milliseconds does not matter.
_SMALL = 1.0


def main(arguments: Sequence[str]) -> int:
    """Measure the models that the arguments name and print each result."""
    options = _parser().parse_args(arguments)
    manifest = load_project(ROOT)
    specs = [spec for spec in manifest.models if _is_chosen(spec, options.models)]
    if not specs:
        print(f"no model is called {' or '.join(options.models)}")
        return 2
    total: Counter[str] = Counter()
    rows = []
    for spec in specs:
        opsets = [n for n in spec.opsets if not options.opsets or n in options.opsets]
        asked = spec.model_copy(update={"thorough": options.thorough or spec.thorough})
        spent = _spent(_records(manifest, asked, opsets))
        total.update(spent)
        rows.append((spec.id, spent))
        print(_line(spec.id, spent), flush=True)
    print(_line("all", total))
    if options.table:
        print("\n".join(_table([*rows, ("all", total)])))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="checks", description=__doc__)
    parser.add_argument("--models", nargs="*", default=["*"], help="IDs of the manifests, or globs")
    parser.add_argument("--opsets", nargs="*", type=int, default=[], help="these alone")
    parser.add_argument("--thorough", action="store_true", help="as `export --thorough` would")
    parser.add_argument("--table", action="store_true", help="the shares as markdown, too")
    return parser


def _is_chosen(spec: ModelSpec, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(spec.id, pattern) for pattern in patterns)


def _records(manifest: Manifest, spec: ModelSpec, opsets: Sequence[int]) -> list[Record]:
    """Return the records of one model from a worker in a fresh process."""
    device = manifest.project.find_device("cpu")
    with TemporaryDirectory(prefix="checks-") as folder:
        files = JobFolder(Path(folder) / spec.id)
        job = Job(
            spec=spec,
            root=str(ROOT),
            build=folder,
            folder=str(files.path),
            opsets=tuple(
                OpsetJob(opset=opset, route=choose_route(spec, opset), devices=(device,))
                for opset in opsets
            ),
        )
        write_json(files.job, job)
        command = [sys.executable, "-P", "-m", "exporter.worker", str(files.job)]
        environment = make_worker_environment(os.environ) | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        return list(files.read_records().values())


def _spent(records: Iterable[Record]) -> Counter[str]:
    """Return the seconds by purpose; shared work of cells counts once."""
    spent: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    for record in records:
        for name in ("source", "capture", "reference"):
            shared[name] = max(shared[name], record.seconds.get(name, 0.0))
        spent["convert"] += record.seconds.get("convert", 0.0)
        spent["load"] += record.seconds.get("load", 0.0)
        for result in record.checks:
            spent[result.check] += result.seconds
    return spent + shared


def _parts(spent: Counter[str]) -> tuple[float, dict[str, float]]:
    export = sum(spent[name] for name in _EXPORT)
    return export, {name: spent[name] for name in spent if name not in _EXPORT}


def _line(name: str, spent: Counter[str]) -> str:
    export, checks = _parts(spent)
    total = sum(checks.values())
    most = sorted(checks.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{what} {seconds:.2f}" for what, seconds in most if seconds >= 0.005)
    small = " (small)" if export < _SMALL else ""
    costs = f"export {export:.2f} s{small}, checks {total:.2f} s, {_share(total, export)}"
    return f"{name}: {costs}: {shares}"


def _table(rows: Sequence[tuple[str, Counter[str]]]) -> Iterator[str]:
    """Return the shares of the export time, one column for each check."""
    whole = rows[-1][1]
    _, checks = _parts(whole)
    names = sorted((name for name in checks if whole[name] > 0), key=lambda name: -whole[name])
    yield f"| model | export | checks | {' | '.join(names)} |"
    yield f"|---|---|---|{'---|' * len(names)}"
    for model, spent in rows:
        export, own = _parts(spent)
        cells = [_share(own.get(name, 0.0), export) for name in names]
        total = _share(sum(own.values()), export)
        yield f"| {model} | {export:.1f} s | {total} | {' | '.join(cells)} |"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
