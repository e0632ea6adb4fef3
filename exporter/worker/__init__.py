"""A job in; records and files out. The only package that imports torch.

`job_runner` has the order of the work: `model`, `inputs`, `reference`, `export`, `verify`, and the
steps of plugins. Runs as `python -m exporter.worker JOB.json`.
"""

from importlib import import_module
from typing import Any

#: The steps of plugins, by the key or the event that needs them.
_STEPS = {
    "component": "components",
    "diagnosis": "diagnosis.explanation",
    "measure": "measurement",
    "passes": "passes.passes",
    "review": "review.review",
    "rollout": "rollout",
}


def load_step(name: str) -> Any:
    """Return the module of a step."""
    return import_module(f"exporter.plugins.{_STEPS[name]}")
