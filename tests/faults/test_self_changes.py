"""Models that change themselves: a record does not depend on what else is exported, or when.

A model that starts threads of Python is no part of it, because no process with threads can fork.

The session `faults` is the long form, which sets `FAULTS=long`: all changes at all moments.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from exporter.manifest import Manifest, load_project
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import BuildOptions
from exporter.pipeline.engine import LocalEngine
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.processes import ForkServerStarter, fork_server_client, make_worker_environment
from exporter.program import run_plan
from exporter.records.record import read_run
from tests.faults import campaign
from tests.faults.changing import MODELS, PAIRS
from tests.faults.lasting_server import LastingStarter, timeless
from tests.integration.program_server import describe_workers, make_subprocess
from tests.integration.project import format_entry, write_project
from tests.unit.pipeline.builders import BuildLog

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux forks"),
]

IS_LONG = os.environ.get("FAULTS") == "long"
#: TorchScript, and dynamo with and without the version converter's steps.
OPSETS = (17, 18, 20)
#: Models of one project.
GROUP = 8
#: The models of the short form: errors that the long form found, and changes in a trace.
SHORT = (
    *(("threads_and_global", "any"), ("new_buffer", "any"), ("class_list", "any_once")),
    *(("several", "trace"), ("weights", "trace")),
)
#: The tracer reads weights after it called the model, so its file is wrong; the others are right.
STATUSES = {f"several-trace/{opset}/cpu": "pass" for opset in OPSETS}
STATUSES |= {f"weights-trace/{opset}/cpu": "fail" if opset < 18 else "pass" for opset in OPSETS}

#: A record without times, and the files of a cell.
Content = tuple[Any, dict[str, bytes]]


@dataclass(frozen=True)
class Variant:
    """One way to export all cells."""

    name: str
    selections: tuple[Selection, ...]
    parts: int = 1
    is_reversed: bool = False


ALL = Variant("all", (Selection(),))
VARIANTS = (
    Variant("each opset alone", tuple(Selection(opsets=(opset,)) for opset in OPSETS)),
    Variant("two workers, reversed models", (Selection(),), parts=2, is_reversed=True),
)


class Project:
    """A project of models that change themselves."""

    def __init__(self, root: Path, pairs: Sequence[tuple[str, str]]) -> None:
        self.root = root
        text = "format = 1\n"
        for change, moment in pairs:
            init = f'init = {{ change = "{change}", moment = "{moment}" }}'
            names = f"{change}-{moment}", "models.py:Changing", init
            text += format_entry(*names, opsets=[*OPSETS], y='"batch", 4')
        write_project(root, {"models.py": MODELS, "net.toml": text})

    def export(self, variant: Variant, starter: ForkServerStarter) -> dict[str, Content]:
        """Export all cells in the way of the variant, each selection into a new build folder."""
        contents: dict[str, Content] = {}
        for number, selection in enumerate(variant.selections):
            manifest = load_project(self.root)
            models = manifest.models[::-1] if variant.is_reversed else manifest.models
            name = f"{variant.name}-{number}".replace(" ", "-")
            project = manifest.project.model_copy(update={"build": name})
            manifest = Manifest(project=project, models=models)
            counts = _divide_all(variant.parts)
            with patch("exporter.pipeline.schedule.count_parts", counts):
                engine = LocalEngine(2, starter)
                plan = make_plan(manifest, selection)
                options = BuildOptions(store=None)
                log = BuildLog()
                results = run_plan(manifest, plan, engine, log, options)
            assert log.records, (log.notes, results.missing)
            contents |= read_contents(self.root / name)
        return contents


def _divide_all(parts: int) -> Callable[..., dict[str, int]]:
    return lambda jobs, *_: {model: min(parts, len(opsets)) for model, opsets in jobs.items()}


def read_contents(path: Path) -> dict[str, Content]:
    """Return each record without its times, and the files of its cell."""
    build = BuildFolder(path)
    contents = {}
    for record in read_run(build.results).records:
        folder = build.model_folder(record.cell.model)
        weights = record.artifact.external_data if record.artifact else ()
        paths = [folder.model(record.cell.opset), *(folder.path / each for each in weights)]
        files = {path.name: path.read_bytes() for path in paths} if record.artifact else {}
        contents[str(record.cell)] = (timeless(record.model_dump(mode="json")), files)
    return contents


@pytest.fixture(scope="module")
def server() -> Iterator[LastingStarter]:
    environment = {**os.environ, "PYTHONPATH": str(campaign.REPOSITORY)}
    lasting_server = LastingStarter(make_worker_environment(environment))
    with patch.object(fork_server_client, "subprocess", make_subprocess(describe_workers())):
        yield lasting_server
        lasting_server.end()


def list_groups() -> list[tuple[tuple[str, str], ...]]:
    if not IS_LONG:
        return [SHORT]
    pairs = list(PAIRS)
    random.Random(0).shuffle(pairs)
    return [tuple(pairs[first : first + GROUP]) for first in range(0, len(pairs), GROUP)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", list_groups(), ids=lambda group: group[0][0])
def test_a_record_depends_on_its_cell_only(
    tmp_path: Path, server: LastingStarter, group: tuple[tuple[str, str], ...]
) -> None:
    project = Project(tmp_path / "project", group)
    expected = omit_figures(project.export(ALL, server))
    assert len(expected) == len(group) * len(OPSETS)
    if not IS_LONG:
        assert {cell: expected[cell][0]["status"] for cell in STATUSES} == STATUSES
    for variant in VARIANTS:
        contents = omit_figures(project.export(variant, server))
        assert contents.keys() == expected.keys()
        for cell, content in expected.items():
            assert contents[cell] == content, (cell, variant.name)


def omit_figures(contents: dict[str, Content]) -> dict[str, Content]:
    """Return the contents without the figures of the checks if a file of the model is wrong.

    The review of a wrong file adds float64 outputs, which the checks of later opsets measure, too.
    A trace runs more functions of a source than a capture, and both may be in one job.
    """
    wrong = {cell.split("/")[0] for cell, (record, _) in contents.items() if is_wrong(record)}
    for cell, (record, _) in contents.items():
        for check in record["checks"] if cell.split("/")[0] in wrong else ():
            check["metrics"] = {}
        if "-trace/" in cell:
            record["sources"] = [source["file"] for source in record["sources"]]
    return contents


def is_wrong(record: Any) -> bool:
    return bool(record["status"] == "fail" and record["stage"] == "parity")
