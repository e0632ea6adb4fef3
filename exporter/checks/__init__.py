"""Checks of an exported file: each tests one promise of the contract."""

from exporter.checks.metric_checks import MetricCheck, RolloutCheck
from exporter.checks.protocol import RuntimeCheck, StructureCheck
from exporter.checks.sample_checks import SAMPLE_CHECKS, LookupTableCheck
from exporter.checks.structure_checks import check_opset, check_signature, check_wellformed
from exporter.checks.validity_checks import DeterminismCheck, PlacementCheck, PowerCheck

#: Checks that read the file without running it.
STRUCTURE_CHECKS: tuple[StructureCheck, ...] = (check_opset, check_wellformed, check_signature)

#: Checks with a session. The first three decide if the results of the others mean anything.
RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    PlacementCheck(),
    DeterminismCheck(),
    PowerCheck(),
    *SAMPLE_CHECKS,
    LookupTableCheck(),
    MetricCheck(),
    RolloutCheck(),
)

#: Checks on a further device. The others judge the file or PyTorch, whatever device runs it.
SHORT_CHECKS: tuple[RuntimeCheck, ...] = (
    PlacementCheck(),
    *SAMPLE_CHECKS,
    MetricCheck(),
    RolloutCheck(),
)

__all__ = ["RUNTIME_CHECKS", "SHORT_CHECKS", "STRUCTURE_CHECKS"]
