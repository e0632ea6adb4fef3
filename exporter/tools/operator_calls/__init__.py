"""The command `ops --measure`: calls of each operator, exported and compared with PyTorch.

Input: the samples of torch's own tests (OpInfo). Output: an `OperatorMeasurement`.
"""
