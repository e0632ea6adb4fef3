"""The engine that the options and the project select."""

from __future__ import annotations

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import EngineSettings, Project
from exporter.planning.shards import Shard
from exporter.usecases.build_plan import ExportOptions
from exporter.usecases.engine_choice import select_engine
from tests.unit.factory import make_manifest, make_spec


def make_project(**values: object) -> Project:
    project = make_manifest(make_spec("net")).project
    return project.model_copy(update={"engine": EngineSettings.model_validate(values)})


def test_the_local_engine_is_the_default() -> None:
    assert select_engine(make_project(), ExportOptions()).kind == "local"


def test_an_option_takes_precedence() -> None:
    project = make_project(kind="dask", cluster="c.py:make", lines={"kind": 3, "cluster": 4})
    assert select_engine(project, ExportOptions(engine="local")).kind == "local"
    chosen = select_engine(project, ExportOptions(scheduler="tcp://h:1"))
    assert (chosen.kind, chosen.scheduler, chosen.cluster) == ("dask", "tcp://h:1", "")
    assert chosen.lines == {"kind": 3}
    assert select_engine(project, ExportOptions(engine="dask")).lines == {"cluster": 4}


def test_only_the_engine_dask_has_a_scheduler() -> None:
    with pytest.raises(ExporterError, match="only the engine dask has a scheduler; add --engine"):
        select_engine(make_project(), ExportOptions(scheduler="tcp://h:1"))


def test_a_shard_cannot_run_on_a_cluster() -> None:
    options = ExportOptions(engine="dask", shard=Shard(index=1, count=2))
    with pytest.raises(ExporterError, match="--shard 1/2: a cluster divides the cells itself"):
        select_engine(make_project(), options)
    assert select_engine(make_project(), ExportOptions(shard=Shard(index=1, count=2)))
