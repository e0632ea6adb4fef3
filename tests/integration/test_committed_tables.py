"""The committed tables of this repository have the values of a new export, by a sample of cells.

Sizes in bytes and errors of floats are not compared: they depend on paths and on the processor.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.manifest.syntax.values import parse_opsets
from exporter.records.baseline import (
    make_baseline,
    read_baseline,
    write_baseline,
)
from exporter.records.record import read_run
from tests.integration.project import ROOT, run_exporter

#: Small models of both exporters at opsets at which they pass, fail as expected, and change.
SAMPLE = {
    "branch_captured": (18, 25),
    "indexed_assignment": (10, 11, 18),
    "list_building": (13,),
    "loop_mixed": (9, 20),
    "loop_traced": (17,),
}
DEVICE = "cpu"
#: Columns of tables that depend on the machine or on other cells of the model.
OMITTED = {"bytes", "size", "error", "loads in ONNX Runtime", "all pass from"}
_FIGURES = re.compile(r",? ?error ≤ \S+|,? ?≤ \d+% of its limit|,? ?of_limit \S+")
_OUTCOME = re.compile(r"### \S+ \w+/(?P<opsets>[\d.,]+)/(?P<device>\w+): (?P<text>.*)")

#: The table, the opset, and the column or the row of a value.
Facts = dict[tuple[str, ...], str]


def read_page(text: str, opsets: tuple[int, ...]) -> Facts:
    """Return the values of a page of a model for some opsets on the first device."""
    facts: Facts = {}
    heading, header = "", [""]
    for line in text.replace("&nbsp;", " ").replace("&#8209;", "-").splitlines():
        if match := re.match(r"##+ (.*)|<details><summary><b>(.*)</b>", line):
            heading, header = match[1] or match[2], [""]
            if match := _OUTCOME.match(line):
                for opset in select(match["opsets"], opsets) if match["device"] == DEVICE else ():
                    facts["outcome", opset] = match["text"]
        elif heading in ("Contract", "Inputs and outputs"):
            facts[heading, ""] = facts.get((heading, ""), "") + f"{line}\n"
        elif line.startswith("|") and not set(line) <= set("|:- "):
            cells = [_FIGURES.sub("", cell).strip() for cell in line.strip("|").split("|")]
            if header == [""]:
                header = cells
            elif heading.partition(" on ")[2] in ("", DEVICE):
                facts |= read_row(heading, dict(zip(header, cells, strict=True)), opsets)
        elif not line.startswith("|"):
            header = [""]
    return facts


def read_row(heading: str, row: dict[str, str], opsets: tuple[int, ...]) -> Facts:
    """Return the values of a row whose opsets are in one column or are the columns."""
    if row.get("on", DEVICE) != DEVICE or row.get("", DEVICE) != DEVICE:
        return {}
    values = {column: value for column, value in row.items() if column not in OMITTED}
    if "opsets" in row:
        return {
            (heading, opset, column): value
            for opset in select(row["opsets"], opsets)
            for column, value in values.items()
            if column != "opsets" and value
        }
    name = next(iter(row.values()))
    return {
        (heading, opset, name): value
        for columns, value in list(values.items())[1:]
        for opset in select(columns, opsets)
        if value
    }


def select(text: str, opsets: tuple[int, ...]) -> Iterator[str]:
    """Yield those of the opsets that a text such as `9..11, 13` contains."""
    if re.fullmatch(r"[\d., ]+", text):
        listed = {opset for part in text.split(",") for opset in parse_opsets(part.strip())}
        yield from (str(opset) for opset in opsets if opset in listed)


def read_reports(reports: Path) -> Facts:
    """Return the values of the sample in the pages and the baseline."""
    facts: Facts = {}
    for model, opsets in SAMPLE.items():
        page = (reports / f"models/{model}.md").read_text(encoding="utf-8")
        facts |= {(model, *key): value for key, value in read_page(page, opsets).items()}
    sample = {f"{model}/{opset}/{DEVICE}" for model in SAMPLE for opset in SAMPLE[model]}
    for outcome in read_baseline(reports / "baseline").cells:
        if str(outcome.cell) in sample:
            fields = outcome.model_dump(mode="json", exclude_defaults=True)
            fields |= fields.pop("figures", {})
            facts |= {
                (str(outcome.cell), "baseline", name): str(value)
                for name, value in fields.items()
                if name not in OMITTED | {"figures", "is_short"}
            }
    return facts


def copy_reports(folder: Path) -> Path:
    """Return a copy of the committed reports, whose baseline has the current format."""
    reports = Path(shutil.copytree(ROOT / "reports", folder / "reports"))
    write_baseline(reports / "baseline", read_baseline(reports / "baseline"))
    return reports


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Return the values of a new export of the sample."""
    root = tmp_path_factory.mktemp("tables") / "project"
    shutil.copytree(ROOT / "manifests", root / "manifests")
    shutil.copy(ROOT / "pyproject.toml", root)
    cells = [f"{model}/{opset}/{DEVICE}" for model in SAMPLE for opset in SAMPLE[model]]
    run_exporter(root, "export", *cells, EXPORTER_STORE="off", code=0)
    # The command `baseline` accepts complete results only.
    baseline = make_baseline(read_run(root / "build/results.json"))
    write_baseline(root / "reports/baseline", baseline)
    assert run_exporter(root, "report").returncode == 0  # a part of the cells writes no tables
    return read_reports(root / "reports")


def test_the_committed_tables_are_those_of_a_new_export(fresh: Facts) -> None:
    committed = read_reports(ROOT / "reports")
    differences = {
        key: (committed.get(key), fresh.get(key))
        for key in committed.keys() | fresh.keys()
        if committed.get(key) != fresh.get(key)
    }
    assert not differences, "run `nox -s export` and commit `reports/`"


def test_the_sample_has_values_of_each_table(fresh: Facts) -> None:
    tables = {key[1] for key in fresh}
    assert {
        "Cells",
        "Contract",
        "Inputs and outputs",
        "Checks on cpu",
        "Files",
        "Operators",
        "Runtimes",
    } <= tables
    assert {"outcome", "baseline"} <= tables
    assert fresh["loop_mixed", "Files", "9", "nodes"] == "9"
    assert fresh["loop_traced/17/cpu", "baseline", "status"] == "xfail"


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("models/loop_mixed.md", r"\| cpu \| ✅", "| cpu | ❌"),
        ("models/loop_mixed.md", r"\| 9 \| torchscript \(trace\) \| (\S+kB) \| 9 ", None),
        ("models/loop_mixed.md", r"\| Gemm \| 2 \|", "| Gemm | 3 |"),
        ("models/loop_mixed.md", r"samples 63", "samples 62"),
        ("models/loop_mixed.md", r"\| batch \| 3 \|", "| batch | 4 |"),
        ("models/loop_mixed.md", r"batch 1 and up, proved 1 to 64", "batch 1 and up"),
        ("models/loop_traced.md", r"/cpu: xfail at parity", "/cpu: xfail at convert"),
        ("baseline/loop_traced.json", r'("loop_traced/17/cpu",\s+"status": )"xfail"', r'\1"pass"'),
        ("baseline/loop_mixed.json", r'("loop_mixed/20/cpu".*?"nodes": )9', r"\g<1>8"),
    ],
)
def test_an_edited_value_is_a_difference(
    tmp_path: Path, file: str, before: str, after: str | None
) -> None:
    reports = copy_reports(tmp_path)
    text = (reports / file).read_text(encoding="utf-8")
    after = after or r"| 9 | torchscript (trace) | \1 | 10 "
    edited = re.sub(before, after, text, count=1, flags=re.DOTALL)
    assert edited != text
    (reports / file).write_text(edited, encoding="utf-8")
    assert read_reports(reports) != read_reports(ROOT / "reports")


def test_sizes_and_errors_of_floats_are_not_compared(tmp_path: Path) -> None:
    reports = copy_reports(tmp_path)
    for file, before, after in (
        (
            "models/loop_mixed.md",
            "≤&nbsp;1e&#8209;7, ≤&nbsp;10% of",
            "≤&nbsp;1e&#8209;6, ≤&nbsp;50% of",
        ),
        ("models/loop_mixed.md", "1.41&nbsp;kB", "1.42&nbsp;kB"),
        ("baseline/loop_mixed.json", '"error": 0.15', '"error": 0.16'),
    ):
        text = (reports / file).read_text(encoding="utf-8")
        assert before in text
        (reports / file).write_text(text.replace(before, after), encoding="utf-8")
    assert read_reports(reports) == read_reports(ROOT / "reports")
