"""After any edits, an incremental run has the results of a run from nothing.

The edits change each kind of dependency of a record. The session `faults` is the long form, which
sets `FAULTS=long`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.cache.fingerprint import compute_fingerprint
from exporter.cache.states import (
    SEARCH_PATH,
    list_metadata_folders,
    read_distribution,
    read_loaded_state,
    read_source_state,
    read_variable_state,
)
from exporter.jobs import Job, JobFolder, write_json
from exporter.manifest import Manifest, ModelSpec, Tolerance
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import BuildOptions
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from exporter.program import run_plan
from exporter.records.record import Record, Source, read_run
from exporter.store import Store, StoreLimits
from tests.distributions import write_distribution
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    announcement,
    manifest,
    outcome,
    record,
    spec,
    write,
    write_reference,
)

SOURCES = ("net.py", "helper.py", "net.pt")
#: A path that leads to one of two files, a file that may be absent, a folder whose names are
#: listed, a variable, and a file and a path outside of the project.
LINK, ABSENT, FOLDER, VARIABLE = "link.txt", "absent.txt", "data", "TEST_FACTOR"
OUTSIDE, OUTSIDE_LINK = "../outside.txt", "../outside-link.txt"
TARGETS = ("one.txt", "two.txt")
#: A submodule, which may be absent, and two folders with one module. The module is found through
#: `PYTHONPATH`, or else through the `.pth` file of an editable install.
SUBMODULE, MODULE = "vendor/net.py", "net_library.py"
LIBRARIES = ("../library-1", "../library-2")
EDITABLE, PYTHONPATH = "editable-net", "PYTHONPATH"
LONG = os.environ.get("FAULTS") == "long"
#: The values of each edit. A project starts with the first ones.
EDITS: dict[str, tuple[Any, ...]] = {
    "name": ("a", "c"),
    "opsets": ((17, 18), (17,), (17, 18, 19), (19,)),
    "source": ("net.py:Net", "net.py:Other"),
    "tolerance": (Tolerance(), Tolerance(atol=1e-3, rtol=1e-3)),
    "devices": (("cpu",), ("cpu", "other")),
    "description": ("", "words"),
    "torch": ("2.12.1 aa", "2.13.0 bb"),
    **dict.fromkeys((*SOURCES, *TARGETS, OUTSIDE), ("1", "2", "3")),
    LINK: TARGETS,
    OUTSIDE_LINK: ("outside.txt", "project/one.txt"),
    ABSENT: (None, "1", "2"),
    FOLDER: ((), ("x",), ("x", "y")),
    VARIABLE: (None, "1", "2"),
    SUBMODULE: (None, "1", "2"),
    **{f"{library}/{MODULE}": (library, "another text") for library in LIBRARIES},
    EDITABLE: LIBRARIES,
    PYTHONPATH: (None, *LIBRARIES, "../nothing"),
}
STATE = {name: values[0] for name, values in EDITS.items()}


def edits() -> st.SearchStrategy[tuple[str, Any, str]]:
    """Return a strategy for a change and the selection of the next run."""
    changes = [
        st.tuples(
            st.just(name), st.sampled_from(values), st.sampled_from(("*", "[ac]", "b/18", ""))
        )
        for name, values in EDITS.items()
    ]
    return st.one_of(changes)


def content(folder: JobFolder, of: Record) -> str:
    assert of.artifact is not None
    [weights] = (folder.path / name for name in of.artifact.external_data)
    assert weights.stat().st_nlink == 1, "onnx refuses it"
    return folder.model(of.cell.opset).read_text() + weights.read_text()


class Project:
    """A project with an edited model, `a` or `c`, and the unedited `b`, with the same helper."""

    def __init__(self, root: Path, store: Store | None = None) -> None:
        self.root = root
        self.store = store
        self.on_note = BuildLog()
        self.force = False
        self.rechecks = 0
        self.divided = 0
        self.engine = FakeEngine(self.work)
        self.state = dict(STATE)

    def put(self, name: str, value: Any) -> None:
        self.state[name] = value
        (self.root / FOLDER).mkdir(parents=True, exist_ok=True)
        libraries = [f"{library}/{MODULE}" for library in LIBRARIES]
        for source in (*SOURCES, *TARGETS, OUTSIDE, ABSENT, SUBMODULE, *libraries):
            path, text = self.root / source, self.state[source]
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_text() != text:
                path.write_text(text)
        for link in (LINK, OUTSIDE_LINK):
            (self.root / link).unlink(missing_ok=True)
            (self.root / link).symlink_to(self.state[link])
        for path in (self.root / FOLDER).iterdir():
            path.unlink()
        for item in self.state[FOLDER]:
            (self.root / FOLDER / item).touch()

        self.install()

    def install(self) -> None:
        """Install the chosen library in editable form. Its list of files never changes."""
        write_distribution(self.packages, EDITABLE, RECORD="_editable.pth,,")
        (self.packages / "_editable.pth").write_text(str(self.root / self.state[EDITABLE]))

    @property
    def packages(self) -> Path:
        """The folder of installed packages."""
        return self.root.parent / "site-packages"

    @property
    def library(self) -> str:
        """The folder in which Python finds the module first."""
        folders = (self.state[PYTHONPATH], self.state[EDITABLE])
        return next(each for each in folders if each and (self.root / each / MODULE).exists())

    def variables(self) -> dict[str, str]:
        path = self.state[PYTHONPATH] and str(self.root / self.state[PYTHONPATH])
        values = {VARIABLE: self.state[VARIABLE], PYTHONPATH: path}
        return {name: value for name, value in values.items() if value is not None}

    def load(self) -> tuple[list[str], dict[str, Any]]:
        """Return the values that the edited model depends on, and the fields of its record.

        A link and its target are separate dependencies.
        """
        target, outside = ((self.root / link).readlink() for link in (LINK, OUTSIDE_LINK))
        inside, absent = [*SOURCES, str(target)], self.root / ABSENT
        names = sorted(path.name for path in (self.root / FOLDER).iterdir())
        values = [(self.root / name).read_text() for name in (*inside, OUTSIDE, OUTSIDE_LINK)]
        values += [absent.read_text() if absent.exists() else "", *names]
        values.append(os.environ.get(VARIABLE, ""))
        submodule, module = self.root / SUBMODULE, f"{self.library}/{MODULE}"
        values += [submodule.read_text() if submodule.exists() else "", self.library]
        values.append((self.root / module).read_text())
        paths = (*inside, LINK, ABSENT, f"{FOLDER}/*", SUBMODULE)
        others = (OUTSIDE, OUTSIDE_LINK, f"../{outside}", EDITABLE, SEARCH_PATH)
        others += (module, f"{self.library}/*.py")
        return values, {
            "sources": self.read_sources(paths),
            "packages": {name: read_loaded_state(name, self.root) for name in others},
            "variables": {VARIABLE: read_variable_state(VARIABLE)},
        }

    def read_sources(self, names: Iterable[str]) -> tuple[Source, ...]:
        return tuple(Source(file=n, state=read_source_state(self.root / n)) for n in names)

    def manifest(self) -> Manifest:
        fields = ("opsets", "source", "tolerance", "devices", "description")
        edited = spec(self.state["name"], **{name: self.state[name] for name in fields})
        return manifest(self.root, edited, spec("b", opsets=(17, 18)))

    def fingerprint(self, of: ModelSpec, *settings: Any) -> dict[str, str]:
        return compute_fingerprint(of, *settings) | {"tool.torch": self.state["torch"]}

    def export(self, pattern: str = "*", name: str = "build") -> dict[str, tuple[Record, str]]:
        """Return each record with the content of its file.

        Only the usual build folder is filled from the store.
        """
        of = self.manifest()
        project = of.project.model_copy(update={"build": name})
        of = Manifest(project=project, models=of.models)
        plan = make_plan(of, Selection(patterns=(pattern,)))
        store = self.store if name == "build" else None
        options = BuildOptions(store=store, force=self.force)
        # A run from nothing never divides a job, because no times are known.
        self.engine, self.on_note = FakeEngine(self.work, workers=4), BuildLog()
        with self.patch_process():
            run_plan(of, plan, self.engine, self.on_note, options)
        build = BuildFolder.from_project(project)
        return {
            str(r.cell): (r, content(build.model_folder(r.cell.model), r))
            for r in read_run(build.results).records
        }

    @contextmanager
    def patch_process(self) -> Iterator[None]:
        """Patch everything that the state changes in the process of a run."""
        with (
            patch("exporter.pipeline.decisions.compute_fingerprint", self.fingerprint),
            patch("exporter.pipeline.schedule._MIN_OPSETS", 1),
            patch.dict(os.environ, self.variables()),
            patch("exporter.cache.states.list_package_folders", self.list_packages),
            patch("exporter.cache.states._FIRST_PATH", (*sys.path, str(self.packages))),
        ):
            for each in (list_metadata_folders, read_distribution):
                each.cache_clear()  # each run is a process of its own
            yield
        list_metadata_folders.cache_clear()

    def list_packages(self) -> tuple[str, ...]:
        return (str(self.packages),)

    def work(self, of: Job) -> JobResult:
        """Build files that depend on all relevant edits, and on nothing else."""
        folder = JobFolder(Path(of.folder))
        write_json(folder.job, of)
        if of.spec.id != "b":
            read, dependencies = self.load()
        else:
            read = [(self.root / SOURCES[1]).read_text()]
            dependencies = {"sources": self.read_sources(SOURCES[1:2])}
        parts = [of.spec.source, self.state["torch"], *read]
        rechecked = {opset.opset for opset in of.opsets if opset.reuse_from}
        self.divided += of.part > 0
        former = next((each.reuse_from for each in of.opsets if each.reuse_from), of.spec.id)
        old = JobFolder(Path(of.build) / former)
        if rechecked:  # the reference of the rechecked file
            shutil.copyfile(old.reference, folder.reference)
            self.rechecks += len(rechecked)
        if len(rechecked) < len(of.opsets):
            write_reference(of, hashlib.sha256("".join(parts).encode()).hexdigest())
        for cell in of.cells():
            new = f"{cell.model} at {cell.opset}: {parts}"
            if cell.opset in rechecked:
                text = old.model(cell.opset).read_text().removeprefix(former)
            else:
                text = new.removeprefix(cell.model)
            content = cell.model + text
            value = record(of, cell, content=content)
            assert value.artifact is not None
            weights = f"weights of {read}".encode()
            name = f"weights-{hashlib.sha256(weights).hexdigest()[:16]}.data"
            (folder.path / name).write_bytes(weights)
            artifact = value.artifact.model_copy(update={"external_data": (name,)})
            update = {
                "artifact": artifact,
                **dependencies,
                "message": of.spec.tolerance.to_json(),
                "seconds": {"capture": 1.0, "convert": 1.0, "parity": 1.0},
            }
            write(of, value.model_copy(update=update))
        return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()[-1:]))


@settings(max_examples=1000 if LONG else 12, deadline=None)
@given(st.lists(edits(), min_size=1, max_size=8))
def test_any_sequence_of_edits_and_partial_runs(sequence: list[tuple[str, Any, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "project")
        project.put("torch", STATE["torch"])
        project.export()
        for name, value, pattern in sequence:
            project.put(name, value)
            if pattern:
                results = project.export(pattern)
                # The results of a partial run are right, and some may be missing.
                expected = project.export(name=f"nothing-{len(list(Path(folder).iterdir()))}")
                assert results.items() <= expected.items()
        assert project.export() == project.export(name="nothing")


@settings(max_examples=200 if LONG else 4, deadline=None)
@given(st.lists(st.tuples(st.booleans(), edits()), min_size=2, max_size=8))
def test_any_sequence_of_edits_of_two_checkouts_with_one_store(
    sequence: list[tuple[bool, tuple[str, Any, str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store", StoreLimits(size=1 << 30, age=1e9))
        checkouts = [Project(Path(folder) / name / "project", store) for name in ("one", "two")]
        for project in checkouts:
            project.put("torch", STATE["torch"])
            project.export()
        for number, (is_second, (name, value, _)) in enumerate(sequence):
            project = checkouts[is_second]
            project.put(name, value)
            assert project.export() == project.export(name=f"nothing-{number}")


def test_one_opset_is_exported_while_others_are_rechecked(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.put("opsets", (17, 18))
    project.export()
    project.put("tolerance", EDITS["tolerance"][1])
    project.put("opsets", (17, 18, 19))
    results = project.export()
    assert project.rechecks == 2
    assert set(project.on_note.reasons) == {"a/17/cpu", "a/18/cpu", "a/19/cpu"}
    assert results == project.export(name="nothing")
    # The reference has not changed, so no cell runs again.
    assert project.export() == results
    assert project.on_note.reasons == {}
    project.put("tolerance", STATE["tolerance"])
    project.force = True
    project.export()
    assert project.rechecks == 2, "a forced cell is exported, although its file is up to date"


def test_a_renamed_entry_is_rechecked_unless_an_input_or_its_folder_changed(
    tmp_path: Path,
) -> None:
    for change, value, rechecks in (("name", "c", 2), ("helper.py", "2", 0), ("source", "x:Y", 0)):
        project = Project(tmp_path / change / "project")
        project.put("opsets", (17, 18))
        project.export()
        project.put("name", "c")
        project.put(change, value)
        results = project.export()
        assert project.rechecks == rechecks, change
        assert results == project.export(name="nothing")


def test_divided_jobs_have_the_results_of_a_run_from_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.put("opsets", (17, 18))
    project.export()
    project.put("helper.py", "2")
    results = project.export()
    assert project.divided > 0
    assert results == project.export(name="nothing")
