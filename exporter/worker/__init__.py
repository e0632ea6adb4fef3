"""A job in; records and files out. The only package that imports torch.

`job_runner` has the order of the work: `model`, `inputs`, `reference`, `export`, `verify`, and then
`passes` and `diagnosis`. Runs as `python -m exporter.worker JOB.json`.
"""
