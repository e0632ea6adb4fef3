"""Measure the calls of all operators: `python -m benchmarks.operators [FUNCTION ...] [--page]`.

Without names, `reports/operators.json` and the page `reports/OPERATORS.md` are written, in half an
hour; later runs measure only new versions of the tools. With names of functions of torch's tests,
such as `topk`, their results are printed. `--page` only writes the page again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import torch

from benchmarks.measure import ROOT
from benchmarks.operators.measure import COLUMNS, measure_functions
from benchmarks.operators.page import make_page
from benchmarks.operators.results import CallSupport, OperatorMeasurement, summarize_calls
from exporter.api.gate_run import read_results
from exporter.cli.output.terminal import align_columns
from exporter.core.errors import ExporterError
from exporter.core.files import write_text
from exporter.manifest import load_project

MEASUREMENT, PAGE = ROOT / "reports/operators.json", ROOT / "reports/OPERATORS.md"
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
#: Functions between two lines of progress.
_PROGRESS_STEP = 25


def main(arguments: Sequence[str]) -> int:
    """Measure the functions that the arguments name, or write the page of all."""
    parser = argparse.ArgumentParser(prog="operators", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("functions", nargs="*", help="names such as topk or nn.functional.conv2d")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.page:
        measurement = OperatorMeasurement.model_validate_json(MEASUREMENT.read_bytes())
    else:
        try:
            functions = measure_functions(options.functions, ROOT / "build/.operators", _print)
        except (ImportError, ValueError) as error:
            print(error, file=sys.stderr)
            return 2
        tools = {name: version(name) for name in _PACKAGES}
        measurement = summarize_calls(functions, COLUMNS, tools)
    if options.functions and not options.page:
        print("\n".join(_describe(measurement)))
        return 0
    write_text(MEASUREMENT, measurement.to_lines())
    write_text(PAGE, make_page(measurement, _find_uses()))
    rows = [("", *CallSupport)]
    for column in measurement.columns:
        counts = measurement.count(column)
        rows.append((column, *(str(counts.get(support, 0)) for support in CallSupport)))
    print("\n".join(align_columns(rows)))
    return 0


def _find_uses() -> dict[str, set[str]]:
    """Return the models of this project by operator; none if there are no results."""
    uses: dict[str, set[str]] = {}
    try:
        records = read_results(load_project(ROOT)).run.records
    except ExporterError as error:
        print(f"the page contains no models: {error}", file=sys.stderr)
        return uses
    for record in records:
        for name in record.torch_operators:
            uses.setdefault(name, set()).add(record.cell.model)
    return uses


def _print(done: int, total: int) -> None:
    if done % _PROGRESS_STEP == 0 or done == total:
        print(f"measured {done} of {total} functions", flush=True)


def _describe(measurement: OperatorMeasurement) -> list[str]:
    lines = []
    for item in measurement.operators:
        lines.append(f"{item.operator}: {item.calls} calls")
        for column, result in item.columns.items():
            reason = f"; {result.reason}" if result.reason else ""
            lines.append(f"  {column}: {result.support}, {result.right} right{reason}")
            if result.call:
                lines.append(f"    {result.call}: {result.message}")
    return [*lines, *measurement.problems]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an error of a library when Python ends is no failure
