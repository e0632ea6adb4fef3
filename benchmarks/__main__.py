"""Run benchmarks and write their figures: `python -m benchmarks [NAME ...] [--quick]`.

Input: names, or none for all. Output: tables on stdout and, unless `--quick` is set, the sections
of `reports/BENCHMARKS.md`. The exit code is 1 if an aim is missed.
"""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import (
    cold,
    dask,
    divided,
    idle,
    more,
    package,
    shared,
    steps,
    touched,
    watch,
    week,
)
from benchmarks.figure import Section
from benchmarks.measure import ROOT, Failed
from exporter.core.files import write_text

REPORT = ROOT / "reports/BENCHMARKS.md"
BENCHMARKS: dict[str, Callable[..., Section]] = {
    "cold": cold.measured,
    "more": more.measured,
    "divided": divided.measured,
    "idle": idle.measured,
    "touched": touched.measured,
    "watch": watch.measured,
    "steps": steps.measured,
    "shared": shared.measured,
    "dask": dask.measured,
    "week": week.measured,
    "package": package.measured,
}
_HEAD = """\
# Benchmarks

The session `bench` writes each section by the benchmark that it is named for. Each was measured
against its rival in the same run; seconds depend on the machine, ratios less so.

"""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks that the arguments name."""
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="the smallest form of each, unjudged")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {unknown[0]}; there are {', '.join(BENCHMARKS)}")
        return 2
    # As in an installation, if this shell disables bytecode.
    compileall.compile_dir(ROOT / "exporter", quiet=2)
    missed = []
    for name in options.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as place:
            try:
                section = BENCHMARKS[name](Path(place), quick=options.quick)
            except Failed as failure:
                print(f"{name}: {failure}")
                return 1
        print("\n".join(section.lines()), flush=True)
        missed += [figure.what for figure in section.figures if figure.met is False]
        if not options.quick:
            write_text(REPORT, with_section(_stored(), section))
    for what in missed:
        print(f"missed: {what}")
    return 1 if missed else 0


def with_section(report: str, section: Section) -> str:
    """Return the report with this section instead of the one of its name, in the usual order."""
    parts = report.split("\n## ")[1:]
    sections = {part.split("\n", 1)[0]: f"## {part}".rstrip() + "\n" for part in parts}
    sections[section.name] = "\n".join(section.lines()).rstrip() + "\n"
    order: Iterable[str] = (name for name in BENCHMARKS if name in sections)
    return _HEAD + "\n".join(sections[name] for name in order)


def _stored() -> str:
    return REPORT.read_text(encoding="utf-8") if REPORT.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
