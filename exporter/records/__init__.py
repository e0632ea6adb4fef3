"""The stored results: records of cells, the baseline, and its figures over commits."""
