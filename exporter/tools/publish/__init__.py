"""Proved files as folders that need nothing else: copied, described, hashed, and held elsewhere.

In: a manifest, a selection and the build folder. Out: `DEST/<model>/<opset>/`, each put into place
by one rename once it was checked at another place than where it was made.
"""

from exporter.publish.choose import Candidate, LeftOut, choose
from exporter.publish.destination import checked_destination
from exporter.publish.folder import Published
from exporter.publish.ship import Shipment, Shipped, ship

__all__ = [
    "Candidate",
    "LeftOut",
    "Published",
    "Shipment",
    "Shipped",
    "checked_destination",
    "choose",
    "ship",
]
