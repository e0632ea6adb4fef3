"""The key `parameters` and `options.export_params`: the weights of a file by their names."""
