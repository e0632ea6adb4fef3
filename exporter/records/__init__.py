"""The stored results: records of cells, the baseline and its history."""
