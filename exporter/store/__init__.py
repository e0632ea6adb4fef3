"""Store finished cells by their inputs, for other branches, undone edits, checkouts and CI."""

from exporter.pipeline.decisions import StoreStatistics
from exporter.store.cell_store import Store
from exporter.store.eviction import EvictionResult, StoreLimits
from exporter.store.store_entry import StoreEntry

__all__ = ["EvictionResult", "Store", "StoreEntry", "StoreLimits", "StoreStatistics"]
