"""Promises held against the file that ships: one per module, one small protocol.

In: a `CheckContext`, and for checks that run the file a `Session`. Out: a `CheckResult` each.
The order is that of the report, and the first that does not pass decides the cell.
"""

from exporter.checks.numerical.axes import Axes
from exporter.checks.numerical.cases import Cases
from exporter.checks.numerical.determinism import Determinism
from exporter.checks.numerical.lookup_tables import Tables
from exporter.checks.numerical.parity import Parity
from exporter.checks.numerical.placement import PlacementCheck
from exporter.checks.numerical.power import Power
from exporter.checks.numerical.values import Values
from exporter.checks.protocol import RuntimeCheck, StructureCheck
from exporter.checks.structural.opset import check_opset
from exporter.checks.structural.signature import check_signature
from exporter.checks.structural.wellformed import check_wellformed

#: What the file is, without running it.
STRUCTURE_CHECKS: tuple[StructureCheck, ...] = (check_opset, check_wellformed, check_signature)

#: What the file computes. The first three ask whether the others mean anything.
RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    PlacementCheck(),
    Determinism(),
    Power(),
    Parity(),
    Axes(),
    Cases(),
    Values(),
    Tables(),
)

__all__ = ["RUNTIME_CHECKS", "STRUCTURE_CHECKS"]
