"""The diagnosis of red cells: the culprit, the first wrong node, missing operators and advice.

Input: a red record or a `Failure`, and the data of the worker: the model, its capture, the file.
Output: the same record with `blame`, `missing` and `advice`. Green cells are not diagnosed.
"""
