"""The command `ops`: the operators that the exporters support, and those that a model lacks.

Input: a project. Output: the page OPERATORS.md, or a `SurveyResponse`.
"""
