"""The options of the engine: `--engine`, `--scheduler` and `--jobs`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.core.toml_table import read_setting

if TYPE_CHECKING:  # a no-op must not import the manifest package
    from exporter.manifest.resolved.project import EngineKind

_ENGINES = ("local", "dask")
_SCHEMES = ("tcp://", "tls://", "ws://", "wss://")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """The engine that the command line selects."""

    kind: EngineKind | None
    """None for the project's setting."""
    scheduler: str
    """The address of a Dask scheduler, or ""."""
    jobs: int | None

    def uses_cluster(self, root: Path) -> bool:
        """Return True if no worker starts in this process. The settings may be invalid."""
        settings: dict[str, object] = read_setting(root, "engine", {})
        return (self.kind or settings.get("kind")) == "dask"


def engine_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options; the command receives `EngineArguments`."""

    @click.option(
        "--engine",
        "kind",
        type=click.Choice(_ENGINES),
        help="Run the jobs on this machine or on a Dask cluster.  [default: local]",
    )
    @click.option(
        "--scheduler",
        metavar="ADDRESS",
        default="",
        callback=_check_address,
        help="The scheduler of a Dask cluster.  [default: a cluster on this machine]",
    )
    @click.option(
        "--jobs",
        type=click.IntRange(min=1),
        help="Number of workers.  [default: by cores and memory]",
    )
    @functools.wraps(function)
    def call_with_engine(
        *arguments: Any, kind: EngineKind | None, scheduler: str, jobs: int | None, **others: Any
    ) -> int:
        engine = EngineArguments(kind=kind, scheduler=scheduler, jobs=jobs)
        return function(*arguments, engine=engine, **others)

    return call_with_engine


def _check_address(_: click.Context, __: click.Parameter, value: str) -> str:
    host, _colon, port = value.rpartition(":")
    if value and not (host.startswith(_SCHEMES) and port.isdigit()):
        message = f"expected an address such as tcp://10.0.0.1:8786, got '{value}'"
        raise click.BadParameter(message)
    return value
