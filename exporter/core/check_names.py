"""The names of all checks with the stage that runs them; manifests and records use them."""

from __future__ import annotations

from collections.abc import Mapping

#: The result of a load that fails after a structure check has failed.
LOAD_CHECK = "load"
#: The check of two runs of PyTorch, which decides if comparisons with PyTorch mean anything.
DETERMINISM_CHECK = "determinism"
#: Check -> stage, in the order of the report.
CHECK_STAGES: Mapping[str, str] = {
    **dict.fromkeys(("opset", "wellformed", "signature"), "structure"),
    LOAD_CHECK: "load",
    **dict.fromkeys(("placement", DETERMINISM_CHECK, "power"), "parity"),
    **dict.fromkeys(("parity", "axes", "cases", "values", "tables"), "parity"),
}
#: The checks that compare a file with runs of PyTorch.
COMPARISON_CHECKS = frozenset({"power", "parity", "axes", "cases", "values"})
