"""The command `publish`: proved files as self-contained folders for other tools."""

from exporter.tools.publish.candidates import Candidate, Omission, choose_files
from exporter.tools.publish.destination import prepare_destination
from exporter.tools.publish.published_folder import Publication
from exporter.tools.publish.publisher import PublishOptions, PublishResult, publish

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
