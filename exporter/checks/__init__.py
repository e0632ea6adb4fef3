"""Checks of an exported file: each module tests one promise of the contract."""

from exporter.checks.numerical.determinism import DeterminismCheck
from exporter.checks.numerical.lookup_tables import LookupTableCheck
from exporter.checks.numerical.placement import PlacementCheck
from exporter.checks.numerical.power import PowerCheck
from exporter.checks.numerical.sample_checks import SAMPLE_CHECKS
from exporter.checks.protocol import RuntimeCheck, StructureCheck
from exporter.checks.structural.opset import check_opset
from exporter.checks.structural.signature import check_signature
from exporter.checks.structural.wellformed import check_wellformed

#: Checks that read the file without running it.
STRUCTURE_CHECKS: tuple[StructureCheck, ...] = (check_opset, check_wellformed, check_signature)

#: Checks with a session. The first three decide if the results of the others mean anything.
RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    PlacementCheck(),
    DeterminismCheck(),
    PowerCheck(),
    *SAMPLE_CHECKS,
    LookupTableCheck(),
)

#: Checks on a further device. The others judge the file or PyTorch, whatever device runs it.
SHORT_CHECKS: tuple[RuntimeCheck, ...] = (PlacementCheck(), *SAMPLE_CHECKS)

__all__ = ["RUNTIME_CHECKS", "SHORT_CHECKS", "STRUCTURE_CHECKS"]
