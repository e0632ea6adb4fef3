"""Comparison of results, baseline and manifests, which decides about a merge."""
