"""PyTorch's results for all input sets: outputs, float64 outputs and noise."""
