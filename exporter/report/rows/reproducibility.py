"""The reason why no script outside this tool can show a failure."""

from __future__ import annotations

from exporter.records.record import Culprit, Record, Stage, Status

#: The checks of outputs that a script repeats; the others need this tool.
_REPEATED_CHECKS = ("parity", "axes", "cases", "values")
_CULPRITS = {
    Culprit.CONTRACT: "PyTorch itself breaks the contract; fix the model, or promise less",
    Culprit.MODEL: "the model differs from itself; remove its state or its random numbers",
    Culprit.FILE: "a new export gives a right file; run `exporter export --force`",
}


def find_repro_obstacle(record: Record) -> str:
    """Return the reason why a script cannot show the failure, "" if it can.

    A record without a failure has no obstacle: its script shows that nothing is wrong.
    """
    if record.stage is Stage.SOURCE:
        return f"fails before the export: {record.message}"
    if record.route is None:
        return "was never exported; run `exporter export` first"
    if not record.route.is_export:
        return "the file was not exported here; run it with the test data in the build folder"
    if record.blame is not None and record.blame.culprit in _CULPRITS:
        return _CULPRITS[record.blame.culprit]
    if record.status is Status.INCONCLUSIVE:
        return "nothing is wrong, but the checks prove nothing; follow the message of the cell"
    if record.stage is not Stage.PARITY or record.check is None:
        return ""
    return _find_check_obstacle(record, record.check)


def _find_check_obstacle(record: Record, check: str) -> str:
    if check not in _REPEATED_CHECKS:
        return f"a script cannot repeat the check '{check}'; run `exporter export` again"
    if record.blame is None:
        return "the failure did not occur again in the diagnosis; run `exporter export --force`"
    return ""
