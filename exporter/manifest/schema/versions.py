"""The annotated type of a range of versions."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from exporter.manifest.schema.fields import Line
from exporter.manifest.syntax.version_ranges import check_version_range

VersionRange = Annotated[
    Line,
    AfterValidator(check_version_range),
    WithJsonSchema({"type": "string", "examples": ["<2.14", ">=2.12, <2.14"]}),
]
