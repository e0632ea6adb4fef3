"""A job in; records and files out. The only package that imports torch.

`job_runner` has the order of a job, and `export_steps` that of a file: `model`, `inputs`,
`reference`, `export`, `verify`, then `passes` and `diagnosis`. Runs as
`python -m exporter.worker JOB.json`.
"""
