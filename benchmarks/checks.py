"""What do the checks cost? Exports models and holds the seconds of the checks against the rest.

In: `python -m benchmarks.checks [--models GLOB …] [--opsets N …] [--thorough] [--table]`. Each
model is exported by a worker of its own, as in a real run, on the CPU. Out: for each model the
seconds that its files took to make, and what PyTorch's reference, loading and each check took
beside them, in seconds and as a share of the former; both are measured in the same run, so that the
share holds on a machine that is busy with other things. `--table` writes the shares as a table of
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

from exporter.jobs.job import Job, OpsetJob
from exporter.jobs.job_folder import JobFolder, write_value
from exporter.manifest import Manifest, ModelSpec, load_project
from exporter.planning.plan import choose_route
from exporter.processes import worker_environment
from exporter.records.record import Record

ROOT = Path(__file__).resolve().parents[1]
#: What makes the files; all else is there to prove them.
_EXPORT = ("source", "capture", "convert")
#: Models that take less are left out of the aim: a fixed cost of milliseconds is no burden.
_SMALL = 1.0


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments say and prints as it goes."""
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
    """The records of one model, by a worker in a fresh process."""
    device = manifest.project.device("cpu")
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
        write_value(files.job, job)
        command = [sys.executable, "-P", "-m", "exporter.worker", str(files.job)]
        environment = worker_environment(os.environ) | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        return list(files.read_records().values())


def _spent(records: Iterable[Record]) -> Counter[str]:
    """Seconds by what they were spent on; what cells share counts once."""
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
    """Shares of the export time, one column for each check that takes any."""
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
