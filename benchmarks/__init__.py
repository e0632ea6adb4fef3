"""Programs that measure the exporter; no part of the package."""
