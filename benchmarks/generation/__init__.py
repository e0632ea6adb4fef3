"""Models that generate: the entries that `exporter add` writes for them, and their verdicts."""
