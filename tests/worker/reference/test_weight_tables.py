"""Digests of the weights for the check of lookup tables."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exporter.checks.runtime_checks import hash_table_parts
from exporter.worker.reference.noise import digest_tables


def test_an_embedding_has_a_digest_for_each_part() -> None:
    model = nn.Embedding(100, 4)
    (table,) = digest_tables(model)
    assert (table.dtype, table.shape) == ("FLOAT", (100, 4))
    assert table.parts == hash_table_parts(model.weight.detach().numpy())
    with torch.no_grad():
        model.weight[57, 2] += 1e-3
    changed = digest_tables(model)[0].parts
    assert sum(old != new for old, new in zip(table.parts, changed, strict=True)) == 1


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float16, "FLOAT16"), (torch.bfloat16, "BFLOAT16"), (torch.float64, "DOUBLE")],
)
def test_every_precision_has_digests(dtype: torch.dtype, name: str) -> None:
    (table,) = digest_tables(nn.Embedding(100, 4, dtype=dtype))
    assert table.dtype == name
    assert len(set(table.parts)) == 64


def test_a_table_under_two_names_counts_once_and_buffers_count_too() -> None:
    model = nn.Module()
    model.table = nn.Embedding(100, 4)
    model.head = nn.Linear(4, 100, bias=False)
    model.head.weight = model.table.weight
    model.register_buffer("positions", torch.randn(50, 4), persistent=False)
    assert [table.shape for table in digest_tables(model)] == [(100, 4), (50, 4)]


def test_weights_without_rows_to_look_up_are_omitted() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 2))
    model.register_buffer("steps", torch.arange(100).reshape(50, 2))
    assert digest_tables(model) == ()
    assert digest_tables(lambda x: x) == ()  # like a compiled function, it has no weights


def test_a_transposed_weight_is_hashed_in_the_order_of_its_rows() -> None:
    model = nn.Module()
    weight = torch.randn(4, 100)
    model.register_buffer("table", weight.T)
    (table,) = digest_tables(model)
    assert table.parts == hash_table_parts(weight.T.contiguous().numpy())
