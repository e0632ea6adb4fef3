"""The command `publish`: proved files as self-contained folders for other tools."""

from exporter.tools.publish.published_folder import Candidate, Omission, Publication, choose_files
from exporter.tools.publish.publisher import (
    PublishOptions,
    PublishResult,
    prepare_destination,
    publish,
)

__all__ = [
    "Candidate",
    "Omission",
    "Publication",
    "PublishOptions",
    "PublishResult",
    "choose_files",
    "prepare_destination",
    "publish",
]
