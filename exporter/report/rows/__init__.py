"""Rows of tables: cells, failures, checks, contracts and artifacts as plain values."""
