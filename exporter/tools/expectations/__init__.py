"""What the manifests would have to say for their expectations to be those of the results.

In: the manifest, the records, a date. Out: for each model whose list would change, the `ModelEntry`s of
the new one; and the text of a manifest file with these lists in it.
"""

from exporter.tools.expectations.expectation_lists import ExpectationLists, propose_lists
from exporter.tools.expectations.manifest_editor import replace_expectations

__all__ = ["ExpectationLists", "propose_lists", "replace_expectations"]
