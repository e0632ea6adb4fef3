"""Decide for each cell: run, recheck, restore or reuse; collect and store the results."""
