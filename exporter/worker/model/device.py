"""The device that a model is on while it runs in PyTorch and is exported.

In: the contract. Out: a `torch.device`, or the `Failure` that makes its cells `unavailable`.
"""

from __future__ import annotations

import torch

from exporter.manifest import ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.process.failure import Failure


def resolve_export_device(spec: ModelSpec) -> torch.device:
    """The device of the manifest.

    Raises:
        Failure: of stage `source`, where this machine lacks it.
    """
    device = torch.device(spec.export_device)
    if device.type == "cpu":
        return device
    module = getattr(torch, device.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (device.index or 0) >= count:
        has = f"has {count} of them" if count else f"has no {device.type}"
        raise Failure(
            Stage.SOURCE,
            f"export_device = '{spec.export_device}': this machine {has}, as PyTorch sees it",
            status=Status.UNAVAILABLE,
        )
    return device
