"""The table of features: unique names, one form of versions, and equal to the page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from exporter.records.record import Stage
from tests.features.feature import SOUND, Referred, Support, parity, refused
from tests.features.names import DYNAMIC_AXES
from tests.features.project import MODELS
from tests.features.row_differences import differences
from tests.features.table import FEATURES, PAGE, ROWS, page
from tests.traps.table import ALL as TRAPS
from tests.unit.factory import make_record

#: `1.4+`, `2.5-2.10`, `up to 1.10`, with a text: `1.0+, TorchScript; deprecated in 2.6`.
_VERSIONS = re.compile(r"(\d\.\d+(\+|-\d\.\d+)|up to \d\.\d+)([,;] [\w ,;.]+)?")


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.features`"


def test_every_row_of_the_page_has_three_cells_and_each_feature_is_on_it() -> None:
    text = page()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells = Counter(token.type for token in tokens)
    rows = cells["tr_open"] - cells["thead_open"]
    assert (cells["td_open"], cells["th_open"]) == (3 * rows, 3 * cells["thead_open"])
    assert not [row.name for row in ROWS if f"{row.name.replace('|', '&#124;')}<br>" not in text]


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(row.name for row in ROWS).items() if count > 1] == []


def test_versions_have_one_form() -> None:
    assert not [row.name for row in ROWS if not _VERSIONS.fullmatch(row.torch)]


def test_a_row_names_its_proof() -> None:
    assert not [
        row.name
        for row in FEATURES
        if row.model and not (MODELS / row.model.partition(":")[0]).is_file()
    ]


def test_traps_that_are_referred_to_exist() -> None:
    names = {trap.name for trap in TRAPS}
    referred = [name for row in ROWS if isinstance(row, Referred) for name in row.traps]
    assert [name for name in referred if name not in names] == []


def test_the_first_condition_that_fits_counts() -> None:
    no, other = parity("axes", "x"), refused(Stage.CONVERT, "y")
    row = replace(DYNAMIC_AXES, verdicts={"half/*/cuda: *": other, "<11": no, "*": SOUND})
    cells = {"net/10/cpu": no, "net/11/cpu": SOUND, "half/9/cuda": other, "half/9/cpu": no}
    assert {cell: row.right(make_record(cell)) for cell in cells} == cells
    with pytest.raises(LookupError, match="net/13/cpu"):
        replace(row, verdicts={"<13": SOUND}).right(make_record("net/13/cpu"))


@pytest.mark.campaign
@pytest.mark.parametrize(
    "changes",
    [
        {"verdicts": {"*": parity("parity", "error")}},
        {"support": Support.CAUGHT},
        {"support": Support.TORCHSCRIPT},
        {"support": Support.DYNAMO},
        {"invalid": "unknown key"},
        {"lines": "dynamic_axis = 1"},
        {"facts": {"never so": lambda proof: not proof.operators(13)}},
    ],
    ids=", ".join,
)
def test_a_wrong_row_is_noticed(changes: dict[str, object], tmp_path: Path) -> None:
    assert differences(replace(DYNAMIC_AXES, **changes), tmp_path / "project")  # type: ignore[arg-type]  # any field
