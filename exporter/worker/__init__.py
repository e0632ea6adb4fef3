"""A job in; records and files out. The only package that imports torch.

The order of the modules is the order of the work: `source`, `inputs`, `reference`, `capture`,
`convert`, `artifact`, `prove`; `drive` walks it. Runs as `python -m exporter.worker JOB.json`.
"""
