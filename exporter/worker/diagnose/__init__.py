"""Why a red cell is red: whose fault, from which node on, and what the exporter lacks.

In: a red record or a `Failure`, and what the worker still has at hand: the model, its capture, the
file. Out: the same record with `blame`, `missing` and `advice`. Green cells never come here.
"""
