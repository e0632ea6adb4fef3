"""What the exporters can convert, asked of torch itself; a process of its own, like a worker.

In: a file name for the table, or a `SurveyRequest` of one model. Out: an `OperatorCounts`, or `SurveyResponse`.
"""
