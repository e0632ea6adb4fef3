"""Export of a loaded model: capture, conversion, names, and the files that are written."""
