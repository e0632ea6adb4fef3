"""Checks of an exported file: each tests one promise of the contract."""

from functools import partial

from exporter.checks.protocol import CheckContext, RuntimeCheck, StructureCheck
from exporter.checks.sample_checks import (
    check_axes,
    check_cases,
    check_parity,
    check_tables,
    check_values,
)
from exporter.checks.structure_checks import check_opset, check_signature, check_wellformed
from exporter.checks.validity_checks import check_determinism, check_placement, check_power
from exporter.core import import_plugin
from exporter.core.check_table import CHECKS, KEY_CHECKS
from exporter.records.record import CheckResult
from exporter.runtimes import Session

#: Checks that read the file without running it.
STRUCTURE_CHECKS: tuple[StructureCheck, ...] = (check_opset, check_wellformed, check_signature)


def _has_key(key: str, context: CheckContext) -> bool:
    return getattr(context.spec, key) is not None


def _check_key(key: str, context: CheckContext, session: Session, device: str) -> CheckResult:
    """Call the check in the plugin of a key; a plugin that is missing raises an exception."""
    result: CheckResult = import_plugin(key, "check").check(context, session, device)
    return result


#: Checks with a session.
RUNTIME_CHECKS: tuple[RuntimeCheck, ...] = (
    check_placement,
    check_determinism,
    check_power,
    check_parity,
    check_axes,
    check_cases,
    check_values,
    check_tables,
    *(RuntimeCheck(key, partial(_check_key, key), partial(_has_key, key)) for key in KEY_CHECKS),
)

#: Checks on a further device.
SHORT_CHECKS = tuple(check for check in RUNTIME_CHECKS if CHECKS[check.name].is_short)

__all__ = ["RUNTIME_CHECKS", "SHORT_CHECKS", "STRUCTURE_CHECKS"]
