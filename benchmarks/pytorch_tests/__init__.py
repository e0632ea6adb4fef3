"""PyTorch's own tests of the exporter, as a judge of green cells."""
