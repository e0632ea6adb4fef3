"""The command `expectations`: manifests that expect the current results.

Input: the manifest, the records and a date. Output: the new list of expectations of each model with
a change, and the text of a manifest file with these lists.
"""

from exporter.tools.expectations.expectation_lists import ExpectationLists, propose_lists
from exporter.tools.expectations.manifest_editor import replace_expectations

__all__ = ["ExpectationLists", "propose_lists", "replace_expectations"]
