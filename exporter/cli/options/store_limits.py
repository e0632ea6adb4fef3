"""The options `--store-size` and `--store-age`, and those of a remote store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from exporter.manifest.schema.settings import Age
from exporter.manifest.syntax.fields import Memory


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the four options; the command receives bytes and seconds, or None."""
    size = "Maximum size of the store, e.g. 5GiB.  [default: `store_size`, or 10GiB]"
    age = "Maximum age of unused entries, e.g. 30d.  [default: `store_age`, or 90d]"
    remote_size = "Remove the least recently used entries of the remote store above this size."
    remote_age = "Remove entries of the remote store that were not used for this time."
    function = click.option("--remote-age", metavar="AGE", callback=_parse(Age), help=remote_age)(
        function
    )
    function = click.option(
        "--remote-size", metavar="SIZE", callback=_parse(Memory), help=remote_size
    )(function)
    function = click.option("--store-age", metavar="AGE", callback=_parse(Age), help=age)(function)
    return click.option("--store-size", metavar="SIZE", callback=_parse(Memory), help=size)(
        function
    )


def _parse(field: Any) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a callback that validates the option like the project's setting."""

    def parse(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else TypeAdapter(field).validate_python(value)
        except ValidationError as error:
            raise click.BadParameter(error.errors()[0]["msg"].partition(", ")[2]) from None

    return parse
