"""The key `compare` of an output: its forms, and those that do not fit the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Comparator, load_project
from exporter.manifest.resolved.model import ModelSpec
from tests.unit.manifest.projects import make_project

ENTRY = """
format = 1
[models.net]
source = "torch.nn:ReLU"
inputs = [{{ name = "x", shape = ["batch", 4] }}]
opsets = 18
outputs = [
    {{ name = "y", shape = ["found", 4], {first} }},
    {{ name = "scores", shape = ["found"], {second} }},
    {{ name = "labels", shape = ["batch"], dtype = "int64", {third} }},
]
"""


def load(root: Path, first: str = "", second: str = "", third: str = "") -> ModelSpec:
    files = {
        "manifests/compare.py": "def same(a, b): return 0, 1\n",
        "manifests/net.toml": ENTRY.format(first=first, second=second, third=third),
    }
    (spec,) = load_project(make_project(root, files)).models
    return spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ cosine = 0.99 }", Comparator(cosine=0.99)),
        ("{ sqnr = 40 }", Comparator(sqnr=40.0)),
        ("{ top_k = 5 }", Comparator(top_k=5)),
        ('{ rows = "unordered" }', Comparator(rows="unordered")),
        (
            '{ rows = "unordered", along = ["scores"] }',
            Comparator(rows="unordered", along=("scores",)),
        ),
        ('"compare.py:same"', Comparator(call="compare.py:same")),
    ],
)
def test_each_form_is_resolved(text: str, expected: Comparator, tmp_path: Path) -> None:
    spec = load(tmp_path, f"compare = {text}")
    assert (spec.problems, spec.outputs[0].compare) == ((), expected)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("compare = { cosin = 0.9 }",), "unknown key; did you mean 'cosine'?"),
        (('compare = { call = "compare.py:same" }',), "write the function without a table"),
        (("compare = { cosine = 0.9, sqnr = 40 }",), "needs exactly one of rows, cosine, sqnr"),
        (("compare = {}",), "needs exactly one of rows"),
        (("compare = { cosine = 1.0 }",), "expected less than 1"),
        (("compare = { sqnr = 0 }",), "expected more than 0"),
        (("compare = { top_k = 0 }",), "expected at least 1"),
        (("compare = 0.9",), "expected a table of one comparator"),
        (('compare = "compare.py:other"',), "compare.py does not define 'other'"),
        (('compare = "other.py:same"',), "manifests/other.py' does not exist"),
        (('compare = { rows = "sorted" }',), "expected 'unordered', got 'sorted'"),
        (('compare = { along = ["scores"], sqnr = 9 }',), "`along` needs `rows`"),
        (
            ('compare = { rows = "unordered", along = ["score"] }',),
            "no other output has the name 'score'; did you mean 'scores'?",
        ),
        (
            ('compare = { rows = "unordered", along = ["labels"] }',),
            "'labels' [batch] lacks the rows [found]",
        ),
        (
            ('compare = { rows = "unordered", along = ["scores"] }', "compare = { sqnr = 9 }"),
            "'scores' has a comparator of its own",
        ),
        (("compare = { sqnr = 9 }, tolerance = { atol = 1 }",), "remove `tolerance` or `compare`"),
        (('compare = { top_k = 1 }, masked_by = "x"',), "remove `masked_by`, or use `cosine`"),
        (("", "", "compare = { sqnr = 9 }"), "does not suit int64; remove it"),
    ],
)
def test_a_comparator_that_does_not_fit_is_reported(
    texts: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExporterError) as error:
        load(tmp_path, *texts)
    assert message in str(error.value).replace('"', "'")
