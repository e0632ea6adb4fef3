"""Finished cells by what they were made from: across branches, undone edits, checkouts and CI.

In: records and the files of a model's folder. Out: the same records and files, for whoever asks
with the same inputs.
"""

from exporter.store.bound import Freed, Limits
from exporter.store.entry import Entry
from exporter.store.shelf import Store

__all__ = ["Entry", "Freed", "Limits", "Store"]
