"""Run sound models with many seeds of weights and inputs; none may be red.

Input: `python -m benchmarks.soundness [--seeds N] [--models GLOB ...] [--zoo] [--opsets N ...]
[--thorough]`. Without `--models` it runs the sound models of `tests/traps`, otherwise the project's
own manifests with their expected failures. With `--zoo` it runs the cells of the zoo for which the
last judgement found a right file. Output: counts and every false red. The exit code is 1 if there
is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.zoo.folders import PROJECT, VERDICTS
from benchmarks.zoo.verdicts import read_verdicts
from exporter.manifest import ModelSpec, load_project
from exporter.planning.plan import apply_expectations
from exporter.records.record import Record
from tests.traps.prove import export
from tests.traps.table import SOUND_MODELS
from tests.traps.trap import ROOT


def main(arguments: Sequence[str]) -> int:
    """Run the models that the arguments name and print each result."""
    options = _parser().parse_args(arguments)
    chosen = list(_choose_models(options))
    if not chosen:
        print(
            "no sound model is selected; change `--models`, or run `benchmarks.zoo` before `--zoo`"
        )
        return 2
    cells = reds = 0
    start = time.monotonic()
    for name, spec in chosen:
        records = [record for seed in range(options.seeds) for record in _run(spec, seed, options)]
        wrong = [record for record in records if not record.status.is_green]
        cells += len(records)
        reds += len(wrong)
        print(f"{name}: {len(records)} cells, {len(wrong)} false reds", flush=True)
        for record in wrong:
            print(f"    {record.fingerprint['seed']} {record.cell}: {_words(record)}", flush=True)
    spent = time.monotonic() - start
    print(f"{len(chosen)} models, {options.seeds} seeds, {cells} cells: {reds} false reds")
    print(f"{spent:.0f} s")
    return 1 if reds else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="soundness", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from 0 on")
    parser.add_argument("--models", nargs="*", default=[], help="IDs of the manifests, or globs")
    parser.add_argument("--zoo", action="store_true", help="the models of the zoo")
    parser.add_argument("--thorough", action="store_true", help="as `export --thorough` would")
    parser.add_argument("--opsets", nargs="*", type=int, default=[], help="these alone")
    return parser


def _choose_models(options: argparse.Namespace) -> Iterator[tuple[str, ModelSpec]]:
    if options.zoo:
        return _zoo_models(options.models or ["*"])
    return _manifest_models(options.models) if options.models else _sound_models()


def _zoo_models(patterns: Sequence[str]) -> Iterator[tuple[str, ModelSpec]]:
    """Yield the models of the zoo with the opsets at which a right file exists."""
    sound = {verdict.cell for verdict in read_verdicts(VERDICTS) if verdict.is_sound}
    for spec in load_project(PROJECT).models:
        opsets = tuple(opset for opset in spec.opsets if f"{spec.id}/{opset}/cpu" in sound)
        if opsets and any(fnmatchcase(spec.id, pattern) for pattern in patterns):
            yield spec.id, spec.model_copy(update={"opsets": opsets})


def _sound_models() -> Iterator[tuple[str, ModelSpec]]:
    for trap in SOUND_MODELS:
        if not trap.package:
            yield trap.name, trap.spec


def _manifest_models(patterns: Sequence[str]) -> Iterator[tuple[str, ModelSpec]]:
    for spec in load_project(ROOT).models:
        if any(fnmatchcase(spec.id, pattern) for pattern in patterns):
            yield spec.id, spec


def _run(spec: ModelSpec, seed: int, options: argparse.Namespace) -> Iterator[Record]:
    """Run every cell with other weights and inputs and yield the result."""
    opsets = tuple(n for n in spec.opsets if not options.opsets or n in options.opsets)
    thorough = options.thorough or spec.thorough
    seeded = spec.model_copy(update={"seed": seed, "opsets": opsets, "thorough": thorough})
    with TemporaryDirectory(prefix="soundness-") as folder:
        place = Path(folder) / spec.id
        if options.zoo or options.models:
            records = _alone(seeded, place, PROJECT if options.zoo else ROOT)
        else:
            records = export(seeded, place)
        for record in records:
            judged = apply_expectations(spec, record)
            yield judged.model_copy(update={"fingerprint": {"seed": f"seed {seed}"}})


def _alone(spec: ModelSpec, place: Path, root: Path) -> tuple[Record, ...]:
    """Run in a new process as a real job does; torch refuses a second LSTM in one process."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(export, spec, place, root=root).result()


def _words(record: Record) -> str:
    where = " / ".join(str(part) for part in (record.stage, record.check) if part)
    parts = [f"{record.status} at {where}: {record.message}", record.expectation]
    return "; ".join(part for part in parts if part)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
