"""Select the engine by the options and the settings of the project."""

from __future__ import annotations

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import EngineSettings, Project
from exporter.usecases.build_plan import ExportOptions

_DASK = "dask"


def select_engine(project: Project, options: ExportOptions) -> EngineSettings:
    """Return the settings of the engine; options take precedence.

    Raises:
        ExporterError: MANIFEST if the options contradict each other.
    """
    engine = project.engine
    kind = options.engine or engine.kind
    update: dict[str, object] = {"kind": kind}
    if options.engine:
        update["lines"] = {key: line for key, line in engine.lines.items() if key != "kind"}
    if options.scheduler:
        if kind != _DASK:
            message = "--scheduler: only the engine dask has a scheduler; add --engine dask"
            raise ExporterError(ExitCode.MANIFEST, message)
        lines = {"kind": engine.lines["kind"]} if "kind" in engine.lines else {}
        # The option selects another cluster than the keys of the project.
        update |= {"scheduler": options.scheduler, "cluster": "", "workers": None, "lines": lines}
    if kind == _DASK and options.shard:
        message = (
            f"--shard {options.shard}: a cluster divides the cells itself; remove --shard, or use "
            "--engine local"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    return engine.model_copy(update=update)
