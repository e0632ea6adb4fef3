"""Connect to a Dask cluster, or start one on this machine.

A cluster that the program starts listens on the loopback interface only. Others have the settings
of Dask, which include TLS.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError, Location, suggest_nearest
from exporter.core.import_object import load_attribute
from exporter.core.text import join_lines
from exporter.core.toml_table import SETTINGS_FILE
from exporter.manifest import EngineSettings

_LOOPBACK = "127.0.0.1"
#: Seconds until a scheduler must respond.
_CONNECT_LIMIT = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """An open connection."""

    client: Any
    """`distributed.Client`."""
    cluster: Any
    """The cluster that this process started, or None."""
    label: str
    """The setting that selects the cluster, for messages."""

    def close(self) -> None:
        """Disconnect; end the cluster if this process started it."""
        # A client whose scheduler is lost raises exceptions of many classes.
        with _quiet(), suppress(Exception):
            self.client.close(timeout=5)
        with _quiet(), suppress(Exception):
            if self.cluster is not None:
                self.cluster.close(timeout=10)


def require_dask(settings: EngineSettings) -> None:
    """Raise if `distributed` is not installed.

    Raises:
        ExporterError: ENVIRONMENT.
    """
    if importlib.util.find_spec("distributed") is None:
        label = locate_engine(settings, "kind")
        message = (
            f"{label}: the package distributed is not installed; run `pip install distributed`"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, f"{message}, or use --engine local")


def locate_engine(settings: EngineSettings, key: str) -> str:
    """Return the file, the line and the key of a setting, or the option that set it."""
    if key in settings.lines:
        location = Location(file=SETTINGS_FILE, line=settings.lines[key])
        return f"{location}: tool.exporter.engine.{key}"
    return {"kind": "--engine dask", "scheduler": "--scheduler"}.get(key, f"engine.{key}")


def connect(settings: EngineSettings, root: Path, scratch: Path, workers: int) -> ClusterConnection:
    """Return a connection to the cluster of the settings.

    Args:
        settings: The scheduler, or the function that returns a cluster, or neither.
        root: The project's folder.
        scratch: The folder for copies of the project of a cluster on this machine.
        workers: The parallel jobs of a cluster on this machine.

    Raises:
        ExporterError: ENVIRONMENT if there is no connection, MANIFEST if the function that returns
            a cluster is missing or fails.
    """
    require_dask(settings)
    _silence_dask()
    if settings.scheduler:
        label = f"{locate_engine(settings, 'scheduler')}: {settings.scheduler}"
        return _connect_to(settings.scheduler, label)
    if settings.cluster:
        cluster, label = _make_cluster(settings, root)
        return _connect_to(cluster, label, cluster)
    with _quiet():
        from distributed import LocalCluster

        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=True,
            local_directory=str(scratch),
            host=_LOOPBACK,
            dashboard_address=f"{_LOOPBACK}:0",
            worker_dashboard_address=f"{_LOOPBACK}:0",
            memory_limit=0,  # the limits of the jobs apply
            silence_logs=logging.CRITICAL,
        )
    label = f"{locate_engine(settings, 'kind')}: the cluster on this machine"
    return _connect_to(cluster, label, cluster)


def _connect_to(target: Any, label: str, cluster: Any = None) -> ClusterConnection:
    from distributed import Client

    try:
        with _quiet():
            client = Client(
                target,
                timeout=_CONNECT_LIMIT,
                set_as_default=False,
                # Replies of hosts are bytes. A pickle could run code in this process.
                deserializers=["msgpack", "error"],
            )
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        if cluster is not None:
            cluster.close()
        reason = join_lines(str(error) or type(error).__name__)
        message = f"{label}: no scheduler accepts the connection: {reason}; start one with "
        message += "`dask scheduler`, or correct the address, such as tcp://10.0.0.1:8786"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from None
    return ClusterConnection(client=client, cluster=cluster, label=label)


def _make_cluster(settings: EngineSettings, root: Path) -> tuple[Any, str]:
    """Call the function of the project, and return its cluster and the label for messages.

    Raises:
        ExporterError: MANIFEST if the file or the function is missing, or the function fails.
    """
    from distributed.deploy.cluster import Cluster

    label = f"{locate_engine(settings, 'cluster')}: {settings.cluster}"
    file, _, name = settings.cluster.rpartition(":")
    if not (root / file).is_file():
        message = f"{label}: the project has no file {file}; create it with a function {name}"
        raise ExporterError(ExitCode.MANIFEST, message)
    try:
        functions = load_attribute(f"{file}:__dict__", root)
        make = functions.get(name)
        cluster = make() if callable(make) else None
    except Exception as error:
        message = f"{label}: fails with {type(error).__name__}: {join_lines(str(error))}; correct "
        raise ExporterError(ExitCode.MANIFEST, f"{message}{file}") from error
    if not callable(make):
        nearest = suggest_nearest(name, [each for each in functions if callable(functions[each])])
        message = f"{label}: the file has no function {name}{nearest or f'; add it to {file}'}"
        raise ExporterError(ExitCode.MANIFEST, message)
    if not isinstance(cluster, Cluster):
        message = f"{label}: the function returned {type(cluster).__name__}, expected a cluster of "
        message += "Dask; return one, such as SLURMCluster"
        raise ExporterError(ExitCode.MANIFEST, message)
    return cluster, label


def _silence_dask() -> None:
    """Hide the log of Dask. The engine reports lost hosts and a lost scheduler itself."""
    importlib.import_module("distributed")  # sets the levels of its loggers
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings of Dask, such as one for a used port of its dashboard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
