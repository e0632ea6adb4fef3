"""Results with other packages: of `cpu@NAME`, and of `rehearse`, which compares them."""

from __future__ import annotations

from exporter.core.device_name import CURRENT
from exporter.manifest import Manifest

#: In the build folder. A model ID cannot start with a dot.
REHEARSALS_FOLDER = ".rehearsals"


def select_suffix(manifest: Manifest, name: str) -> Manifest:
    """Return the manifest with the cells of one suffix, or of `current`, only."""
    active = "" if name == CURRENT else name
    selected = (
        model.model_copy(
            update={
                "devices": tuple(
                    device_name for device_name in model.devices if device_name.suffix == active
                )
            }
        )
        for model in manifest.models
    )
    return Manifest(
        project=manifest.project.model_copy(update={"active_suffix": active}),
        models=tuple(model for model in selected if model.devices),
        problems=manifest.problems,
    )
