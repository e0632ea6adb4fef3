"""Store finished cells by their inputs, for other branches, undone edits, checkouts and CI."""

from exporter.plugins.store.cell_store import Store, StoreStatistics
from exporter.plugins.store.eviction import EvictionResult, StoreLimits
from exporter.plugins.store.store_entry import StoreEntry

__all__ = ["EvictionResult", "Store", "StoreEntry", "StoreLimits", "StoreStatistics"]
