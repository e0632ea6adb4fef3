"""The option `--shard`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # a no-op must not import the planning modules
    from exporter.planning.shards import Shard


def shard_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--shard I/N`; the command receives a `Shard`, or None."""
    text = "Only part I of N, in complete models; `merge` joins the parts."
    return click.option("--shard", metavar="I/N", callback=_parse_shard, help=text)(function)


def _parse_shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    if value is None:
        return None
    from exporter.planning.shards import Shard

    index, _slash, count = value.partition("/")
    if not all(text.isascii() and text.isdigit() for text in (index, count)):
        raise click.BadParameter(f"expected I/N, such as 1/4, got '{value}'")
    shard = Shard(index=int(index), count=int(count))
    if not 1 <= shard.index <= shard.count:
        raise click.BadParameter(f"expected 1 to {count}, got {index}")
    return shard
