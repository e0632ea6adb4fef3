"""`pytest --exporter`: each cell of the manifests is a test item.

The cells of all selected items run in one export before the first item. So they have the verdicts
and the processes of `exporter export`, also if pytest-xdist divides the items: the first process
exports, the others wait and read its results. Without the option the package is not imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from exporter.core.errors import ExporterError
from exporter.planning import Selection
from exporter.processes.fork_server_client import make_starter

if TYPE_CHECKING:
    from exporter.manifest import Manifest
    from exporter.records.record import CellId, Record

_FILE = "pyproject.toml"
_OUTCOMES = pytest.StashKey[dict["CellId", "Record | str"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("exporter")
    group.addoption(
        "--exporter", action="store_true", help="Run each cell of the ONNX manifests as a test."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the cells in addition to the tests."""
    if config.getoption("--exporter"):
        config.args.append(str(config.rootpath / _FILE))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of the project's cells."""
    is_project = file_path == parent.config.rootpath / _FILE
    if not is_project or not parent.config.getoption("--exporter"):
        return None
    collector: pytest.Collector = CellFile.from_parent(parent, path=file_path)
    return collector


class CellFile(pytest.File):
    """All cells of a project."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each cell.

        Raises:
            CollectError: A manifest cannot be read, so its cells are unknown.
        """
        # Each run of pytest loads this module; one without the option need not pay 110 ms.
        from exporter.manifest import load_project
        from exporter.planning.plan import make_plan

        try:
            manifest = load_project(self.path.parent, keep_invalid=True)
            plan = make_plan(manifest)
        except ExporterError as error:
            raise self.CollectError(str(error)) from error
        if manifest.problems:
            raise self.CollectError("\n".join(map(str, manifest.problems)))
        for planned in plan.cells:
            cell = planned.cell
            yield CellItem.from_parent(self, name=str(cell), cell=cell, manifest=manifest)


class CellItem(pytest.Item):
    """A cell."""

    def __init__(self, *, cell: CellId, manifest: Manifest, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.cell, self.manifest = cell, manifest

    def runtest(self) -> None:
        """Fail if the cell is red; skip it if it did not run."""
        from exporter.records.record import Status  # 50 ms

        outcome = self.config.stash[_OUTCOMES][self.cell]
        if isinstance(outcome, str):
            raise CellFailure(outcome)
        if outcome.status in (Status.SKIP, Status.UNAVAILABLE):
            pytest.skip(f"{outcome.status}: {outcome.message}")
        if outcome.status is Status.XFAIL:
            pytest.xfail(outcome.foreseen or outcome.message)
        if outcome.status.is_red:
            from exporter.cli.output.tables import describe_failures  # 120 ms

            raise CellFailure(describe_failures(self.manifest, [outcome]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the findings without a traceback of this module."""
        is_finding = isinstance(excinfo.value, CellFailure)
        return str(excinfo.value) if is_finding else str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        spec = self.manifest.find_model(self.cell.model)
        return self.path.parent / spec.manifest, spec.line - 1, self.name


class CellFailure(Exception):
    """The findings of a red cell."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Export the cells of all selected items, in each process of pytest-xdist."""
    items = [item for item in session.items if isinstance(item, CellItem)]
    if items and not session.config.option.collectonly:
        session.config.stash[_OUTCOMES] = _export(items)


def _export(items: list[CellItem]) -> dict[CellId, Record | str]:
    """Return the record of each cell, or why it has none."""
    from filelock import FileLock

    # 180 ms, as above.
    from exporter.cli.output.line_progress import QuietProgress
    from exporter.export_options import ExportOptions
    from exporter.pipeline.build_folder import BuildFolder
    from exporter.program import export

    project = items[0].manifest.project
    cells = [item.cell for item in items]
    build_path = BuildFolder.from_project(project).path
    build_path.mkdir(parents=True, exist_ok=True)
    # The build folder without reports, because a test must not change committed files.
    options = ExportOptions(selection=Selection(patterns=tuple(map(str, cells))), build=build_path)
    starter = make_starter(os.environ, project.environment)
    try:
        with FileLock(build_path / ".pytest.lock"), closing(starter):
            result = export(Path(project.root), options, QuietProgress(), starter, os.environ)
    except ExporterError as error:
        return dict.fromkeys(cells, str(error))
    records = result.results.run.by_cell()
    missing = result.results.missing
    return {cell: records.get(cell) or f"no result: {missing[cell]}" for cell in cells}
