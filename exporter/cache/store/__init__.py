"""Finished cells by what they were made from: across branches, undone edits, checkouts and CI.

In: records and the files of a model's folder. Out: the same records and files, for whoever asks
with the same inputs.
"""

from exporter.cache.store.entry import StoreEntry
from exporter.cache.store.eviction import Freed, StoreLimits
from exporter.cache.store.store import Store

__all__ = ["Freed", "Store", "StoreEntry", "StoreLimits"]
