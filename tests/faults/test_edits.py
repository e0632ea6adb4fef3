"""After any edits, real workers have the records and bytes of a run from nothing.

The edits change code, weights, links, folders, variables and the search path.

The session `faults` is the long form, which sets `FAULTS=long`. It prints the counts. All runs
share the fork servers, which load torch once.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from exporter.manifest import Manifest, load_project
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import BuildOptions
from exporter.pipeline.engine import LocalEngine
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.processes import make_worker_environment
from exporter.program import run_plan
from exporter.records.record import read_run
from exporter.store import Store, StoreLimits
from tests.faults import campaign, corruption
from tests.faults.lasting_server import LastingStarter, timeless
from tests.integration.project import format_entry
from tests.unit.pipeline.builders import BuildLog

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux forks"),
]

IS_LONG = os.environ.get("FAULTS") == "long"
SEQUENCES, STEPS = (50, 4) if IS_LONG else (1, 2)
_STORE = StoreLimits(size=1 << 30, age=1e9)

MODELS = '''
import torch
from torch import nn


class Net(nn.Module):
    """{docstring}"""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        from helper import factor
        return {source} * factor(self.linear(x))
'''
HELPER = """
import os
from pathlib import Path

import net_library

try:
    import optional
except ImportError:
    optional = None

FOLDER = Path(__file__).parent


def factor(x):
    submodule = FOLDER / "vendor/number.txt"
    numbers = [float((FOLDER / "link.txt").read_text()), net_library.VALUE]
    numbers.append(float(os.environ.get("EDIT_FACTOR", "1")))
    numbers.append(float(getattr(optional, "VALUE", 1.0)))
    numbers.append(float(submodule.read_text()) if submodule.exists() else 1.0)
    for number in numbers:
        x = x * number
    return x * {helper}
"""
#: The values of each edit. A project starts with the first ones.
EDITS: dict[str, tuple[Any, ...]] = {
    "source": ("1.0", "2.0"),
    "helper": ("1.0", "3.0"),
    "docstring": ("One text", "Another text"),
    "weights": (1, 2),
    "opsets": ([16, 17], [16], [15, 16, 17], [16, 17, 18]),
    "tolerance": ("", "tolerance = { atol = 1e-3, rtol = 1e-3 }", "tolerance = { atol = 1e-9 }"),
    "axis": ('"batch"', "2"),
    "description": ("", 'description = "words"'),
    "corruption": (0, 1, 2),
    "link": ("one.txt", "two.txt"),
    "submodule": (None, "2.0", "3.0"),
    "library": ("library-1", "library-2"),
    "variable": (None, "2.0"),
    # A module that the helper searches for, also as a folder, and those that no import finds.
    "module": (None, "commands.py", "optional/__init__.py", "optional/data.txt", "other.py"),
    "neighbor": (None, "conftest.py", "net_library.txt", "models_BACKUP.py", "net_library.py"),
}


class Servers:
    """A fork server for each environment, because a server has that of its start."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], LastingStarter] = {}

    def get(self, variables: dict[str, str]) -> LastingStarter:
        """Return the server whose workers receive the variables; create it at its first use."""
        key = tuple(variables.values())
        if key not in self._servers:
            environment = make_worker_environment({**os.environ, **variables}, ["EDIT_*"])
            self._servers[key] = LastingStarter(environment)
        return self._servers[key]

    def end(self) -> None:
        for server in self._servers.values():
            server.end()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two libraries that have a module of the same name."""
    folder = tmp_path_factory.mktemp("libraries")
    for number, name in enumerate(EDITS["library"], 1):
        (folder / name).mkdir()
        (folder / name / "net_library.py").write_text(f"VALUE = {number}.5\n")
    return folder


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.end()


class Project:
    """An edited model and an unedited one. Both load the same files."""

    def __init__(self, root: Path, servers: Servers, libraries: Path) -> None:
        self.root = root
        self._libraries = libraries
        self.state = {name: values[0] for name, values in EDITS.items()}
        self._servers = servers
        self._nothings = 0
        (root / "manifests").mkdir(parents=True)
        (root / "pyproject.toml").write_text('[tool.exporter]\nenvironment = ["EDIT_*"]\n')
        self.lay_out()

    def lay_out(self) -> None:
        state, folder = self.state, self.root / "manifests"
        lines = f'weights = "net.pt"\n{state["tolerance"]}\n{state["description"]}'
        shapes = {name: f"{state['axis']}, {size}" for name, size in (("x", 4), ("y", 3))}
        edited = format_entry("a", "models.py:Net", lines, opsets=state["opsets"], **shapes)
        other = format_entry("b", "models.py:Net")
        texts = {
            "net.toml": f"format = 1\n{edited}{other}",
            "models.py": MODELS.format(**state),
            "helper.py": HELPER.format(**state),
        }
        for name, text in texts.items():
            path = folder / name
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
                os.utime(path, (10**9, 10**9))  # times that a program sets are not compared
        for name, number in (("one.txt", "1.0"), ("two.txt", "2.0")):
            (folder / name).write_text(number)
        (folder / "link.txt").unlink(missing_ok=True)
        (folder / "link.txt").symlink_to(state["link"])
        shutil.rmtree(folder / "vendor", ignore_errors=True)
        if state["submodule"] is not None:
            (folder / "vendor").mkdir()
            (folder / "vendor/number.txt").write_text(state["submodule"])
        for name in {*EDITS["module"], *EDITS["neighbor"]} - {None}:
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "optional", ignore_errors=True)
        for name in filter(None, (state["module"], state["neighbor"])):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("VALUE = 4.0\n")
            os.utime(folder / name, (10**9, 10**9))
        generator = torch.Generator().manual_seed(state["weights"])
        shapes = {"linear.weight": (3, 4), "linear.bias": (3,)}
        weights = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
        if not (folder / "net.pt").exists() or not same(torch.load(folder / "net.pt"), weights):
            torch.save(weights, folder / "net.pt")

    def variables(self) -> dict[str, str]:
        """Return the environment of the next run."""
        folders = (campaign.REPOSITORY, self._libraries / self.state["library"])
        variables = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
        factor = self.state["variable"]
        return variables | ({} if factor is None else {"EDIT_FACTOR": factor})

    def export(self, pattern: str = "*", name: str = "build", store: bool = False) -> BuildLog:
        variables = self.variables()
        with patch.dict(os.environ, variables):
            return self._export(self._servers.get(variables), pattern, name, store)

    def _export(self, server: LastingStarter, pattern: str, name: str, store: bool) -> BuildLog:
        manifest = load_project(self.root)
        manifest = Manifest(
            project=manifest.project.model_copy(update={"build": name}), models=manifest.models
        )
        log = BuildLog()
        options = BuildOptions(store=Store(self.root / ".store", _STORE) if store else None)
        plan = make_plan(manifest, Selection(patterns=(pattern,)))
        run_plan(manifest, plan, LocalEngine(2, server), log, options)
        return log

    def read_contents(self, name: str = "build") -> dict[str, tuple[Any, dict[str, bytes]]]:
        """Return each record without its times, with the bytes of its files."""
        build = BuildFolder(self.root / name)
        contents = {}
        for record in read_run(build.results).records:
            folder = build.model_folder(record.cell.model)
            weights = record.artifact.external_data if record.artifact else ()
            paths = [folder.model(record.cell.opset), *(folder.path / each for each in weights)]
            files = {path.name: path.read_bytes() for path in paths} if record.artifact else {}
            contents[str(record.cell)] = (timeless(record.model_dump(mode="json")), files)
        return contents

    def from_nothing(self) -> dict[str, tuple[Any, dict[str, bytes]]]:
        self._nothings += 1
        name = f"nothing-{self._nothings}"
        self.export(name=name)
        contents = self.read_contents(name)
        shutil.rmtree(self.root / name)
        return contents


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_any_sequence_of_edits(
    tmp_path: Path, servers: Servers, libraries: Path, seed: int
) -> None:
    draw = random.Random(seed)
    project = Project(tmp_path / "project", servers, libraries)
    project.export()
    # Every kind of edit is used once before one is repeated.
    kinds = iter(draw.sample(list(EDITS), len(EDITS)) * STEPS)
    runs: Counter[str] = Counter()
    for _ in range(STEPS):
        done = [next(kinds) for _ in range(draw.choice((1, 1, 2)))]
        for kind in done:
            others = [value for value in EDITS[kind] if value != project.state[kind]]
            project.state[kind] = draw.choice(others)
            if kind == "corruption":
                corruption.corrupt_files(tmp_path / "project/build", draw, 1 + project.state[kind])
        project.lay_out()
        if draw.random() < 0.3:
            project.export("a/16")
        log = project.export(store=draw.random() < 0.5)
        runs["+".join(done)] += len(log.records)
        contents, expected = project.read_contents(), project.from_nothing()
        context = (done, project.state, log.reasons)
        assert contents.keys() == expected.keys(), context
        for cell, (record, files) in expected.items():
            assert contents[cell] == (record, files), context
        assert project.export().reasons == {}, context
    campaign.print_counts(f"seed {seed}: {STEPS} runs, cells by kind of edit: {dict(runs)}")
