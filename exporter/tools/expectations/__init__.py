"""The command `expectations`: manifests that expect the current results."""

from exporter.tools.expectations.expectation_lists import ExpectationLists, propose_lists
from exporter.tools.expectations.manifest_editor import replace_expectations

__all__ = ["ExpectationLists", "propose_lists", "replace_expectations"]
