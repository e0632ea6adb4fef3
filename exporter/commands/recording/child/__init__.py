"""Programs of `record` and `add` that import torch: the observer of a script, and the prober."""
