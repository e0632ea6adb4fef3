"""The stored results: records of cells, the baseline, its history and audits."""
