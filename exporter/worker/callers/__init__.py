"""Programs of the project that run the file, compared with PyTorch on the same samples."""
