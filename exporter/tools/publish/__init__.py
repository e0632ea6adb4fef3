"""Proved files as folders that need nothing else: copied, described, hashed, and held elsewhere.

In: a manifest, a selection and the build folder. Out: `DEST/<model>/<opset>/`, each put into place
by one rename once it was checked at another place than where it was made.
"""

from exporter.tools.publish.candidates import Candidate, LeftOut, choose
from exporter.tools.publish.destination import checked_destination
from exporter.tools.publish.publish import PublishOptions, PublishResult, publish
from exporter.tools.publish.published_folder import Published

__all__ = [
    "Candidate",
    "LeftOut",
    "PublishOptions",
    "PublishResult",
    "Published",
    "checked_destination",
    "choose",
    "publish",
]
