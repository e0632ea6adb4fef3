"""Checks of an exported file: each tests one promise of the contract."""

from exporter.checks.metric import check_metric
from exporter.checks.protocol import RuntimeCheck, StructureCheck
from exporter.checks.rollout import check_rollout
from exporter.checks.sample_checks import (
    check_axes,
    check_cases,
    check_parity,
    check_tables,
    check_values,
)
from exporter.checks.structure_checks import (
    check_labels,
    check_metadata,
    check_opset,
    check_signature,
    check_wellformed,
)
from exporter.checks.validity_checks import check_determinism, check_placement, check_power
from exporter.core.check_table import CHECKS

#: Checks that read the file without running it.
STRUCTURE_CHECKS: tuple[StructureCheck, ...] = (
    check_opset,
    check_wellformed,
    check_signature,
    check_metadata,
    check_labels,
)


#: Checks that run the file in a session of its device.
RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    check_placement,
    check_determinism,
    check_power,
    check_parity,
    check_axes,
    check_cases,
    check_values,
    check_tables,
    check_metric,
    check_rollout,
)

#: Checks on a device after another one proved the same file.
SHORT_CHECKS = tuple(check for check in RUNTIME_CHECKS if CHECKS[check.name].is_short)

__all__ = ["RUNTIME_CHECKS", "SHORT_CHECKS", "STRUCTURE_CHECKS"]
