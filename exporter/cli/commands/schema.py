"""`exporter schema`: print the JSON Schema of manifests, for editors."""

from __future__ import annotations

import click

from exporter.core.errors import ExitCode


@click.command()
def schema() -> int:
    """Print the JSON Schema of manifests.

    Editors complete the keys if a manifest begins with the line `#:schema PATH` of the file that
    contains it.
    """
    from exporter.manifest.schema.documents import format_schema

    click.echo(format_schema(), nl=False)
    return ExitCode.OK
