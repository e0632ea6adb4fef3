"""Export the zoo and compare each verdict with an independent judgement.

Input: `python -m benchmarks.zoo [--models GLOB ...] [--page]`. Output: each disagreement, and the
number of cells that agree. The verdicts on other models remain from earlier runs. Without `--page`
it prints the cells that differ from those of `reports/ZOO.md`, which may be of another release of
torch; with it, it writes that page. The exit code is 1 if a green file is wrong, if a disagreement
has no reason, or if less than 97 % agree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version

from benchmarks.zoo.folders import BUILD, MANIFESTS, PAGE, PROJECT, VERDICTS
from benchmarks.zoo.page import compare_with_page, list_faults, make_page, read_reasons
from benchmarks.zoo.verdicts import Verdict, judge_model, read_verdicts, write_verdicts
from exporter.core.files import write_text
from exporter.manifest import load_project
from exporter.records.record import read_run

PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def main(arguments: Sequence[str]) -> int:
    """Run the models that the arguments name."""
    options = _parser().parse_args(arguments)
    manifest = load_project(PROJECT)
    specs = [
        spec
        for spec in manifest.models
        if any(fnmatchcase(spec.id, pattern) for pattern in options.models)
    ]
    if not specs:
        print(f"no model is called {' or '.join(options.models)}")
        return 2
    _export(spec.id for spec in specs)
    records = read_run(BUILD / "results.json").records
    verdicts = {verdict.cell: verdict for verdict in read_verdicts(VERDICTS)}
    for spec in specs:
        chosen = [record for record in records if record.cell.model == spec.id]
        for verdict in judge_model(spec, chosen, BUILD, MANIFESTS):
            verdicts[verdict.cell] = verdict
            _print(verdict)
        write_verdicts(VERDICTS, verdicts.values())
    models = [spec.id for spec in manifest.models]
    judged = [verdict for verdict in verdicts.values() if verdict.model in models]
    judged.sort(key=lambda verdict: (models.index(verdict.model), verdict.opset))
    reasons = read_reasons()
    if options.page:
        write_text(PAGE, make_page(judged, reasons, {name: version(name) for name in PACKAGES}))
    counts = Counter(verdict.kind for verdict in judged)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    if not options.page:
        print(*compare_with_page(judged, PAGE.read_text(encoding="utf-8")), sep="\n")
    faults = list(list_faults(judged, reasons))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def _export(models: Iterable[str]) -> None:
    """Run the real command in one worker, so that the judgement has the other cores."""
    command = [sys.executable, "-m", "exporter", "export", "--root", str(PROJECT)]
    subprocess.run([*command, "--jobs", "1", "--no-store", *models], check=False)


def _print(verdict: Verdict) -> None:
    print(f"{verdict.cell}: {verdict.status}, {verdict.kind}", flush=True)
    if verdict.kind != "agree" or verdict.message:
        print(f"    {verdict.message[:400]}\n    {verdict.judgement[:400]}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("--models", nargs="*", default=["*"], help="IDs of the zoo, or globs")
    parser.add_argument("--page", action="store_true", help="write reports/ZOO.md")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
