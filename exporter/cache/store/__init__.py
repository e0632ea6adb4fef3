"""Store finished cells by their inputs, for other branches, undone edits, checkouts and CI.

Input: records and the files of a model's folder. Output: the same records and files, if the
inputs of a cell are the same again.
"""

from exporter.cache.store.cell_store import Store
from exporter.cache.store.eviction import EvictionResult, StoreLimits
from exporter.cache.store.store_entry import StoreEntry
from exporter.cache.store.store_statistics import StoreStatistics

__all__ = ["EvictionResult", "Store", "StoreEntry", "StoreLimits", "StoreStatistics"]
