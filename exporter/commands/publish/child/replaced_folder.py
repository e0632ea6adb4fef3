"""The numbers of a published file and of the one that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from exporter.commands.publish.published_folder import EXAMPLE, MODEL, Publication
from exporter.core.device_name import DeviceName
from exporter.core.files import hash_file
from exporter.manifest import Device, ModelSpec
from exporter.runtimes import open_session


def compare_numbers(old: Path, new: Path, spec: ModelSpec) -> Iterator[str]:
    """Yield how the outputs for the example of a new folder differ from those of the old file.

    `new`: With the file of the export, which has no description yet.
    """
    if spec.custom_ops or not (new / EXAMPLE).is_file():
        return
    try:
        if Publication.from_folder(old).exported == hash_file(new / MODEL):
            return
        with np.load(new / EXAMPLE, allow_pickle=False) as file:
            inputs = {each.name: file[each.name] for each in spec.inputs if each.name in file}
        device = Device(name=DeviceName("cpu"), runtime="onnxruntime")
        sessions = [open_session(each / MODEL, device) for each in (old, new)]
        outputs = [dict(zip(s.output_names, s.run(inputs), strict=True)) for s in sessions]
    except Exception:  # its reason may contain a path of this machine, and the card has no such
        yield f"numbers: the replaced file does not run on the new {EXAMPLE}"
        return
    for name in (name for name in outputs[0] if name in outputs[1]):
        first, second = outputs[0][name], outputs[1][name]
        if isinstance(first, list) or isinstance(second, list) or first.dtype.kind == "O":
            continue
        if first.shape != second.shape:
            yield f"numbers of {name}: another shape"
        elif not np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            wide = [each.astype(np.float64) for each in (first, second)]
            with np.errstate(invalid="ignore"):
                difference = np.abs(wide[0] - wide[1]).max()
                scale = np.abs(wide[0]).max()
            yield f"numbers of {name}: by up to {difference:.3g}, its largest value is {scale:.3g}"
