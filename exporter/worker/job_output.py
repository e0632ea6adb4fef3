"""The output of a job: announcements, logs and records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from exporter.cache.states import DISTRIBUTIONS, SEARCH_PATH, read_loaded_state, read_tool_state
from exporter.core.text import join_names, rename_reference
from exporter.jobs import Announcement, Job, JobFolder, OpsetJob, write_json
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.silent_faults import list_silent_faults
from exporter.planning.plan import apply_expectations
from exporter.records.record import DIAGNOSIS_NOTE, WITHHELD_NOTE, CellId, Record, Stage, Status
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.opened_files import OpenedFiles, VariableReads
from exporter.worker.dependencies.packages import list_loaded_packages
from exporter.worker.dependencies.source_files import (
    JobStart,
    digest_dependencies,
    expand_globs,
)
from exporter.worker.model.call_objects import NO_CUSTOM_OPS, CustomOps
from exporter.worker.model.generation import describe_release
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import collect_in_fork
from exporter.worker.process.model_lines import quote_line
from exporter.worker.process.observed_call import CallReport
from exporter.worker.process.setup import mark_resource_failures, redirect_output
from exporter.worker.torch_private.internals import has_interpreted_bytecode

#: Stages that serve all opsets of the job.
_SHARED_STAGES = (Stage.SOURCE, Stage.CAPTURE)
#: The longest diagnosis of one cell in CPU seconds, and the share of the model's time for all.
_MAX_SECONDS = 30.0
_SHARE = 0.25
#: The fields of a record that a diagnosis sets.
_EXPLAINED = ("message", "lines", "blame", "missing", "obstacles", "broken_pass", "advice")
Fields: TypeAlias = Mapping[str, Any]


def diagnosis_seconds(spec: ModelSpec, cells: int) -> float:
    """Return the time limit for the diagnosis of one of `cells` red cells."""
    return min(_MAX_SECONDS, spec.timeout * _SHARE / max(cells, 1))


@dataclass(slots=True, kw_only=True)
class JobOutput:
    """The folder of a job, with the fields that its records share. A stage sets what it finds."""

    job: Job
    spec: ModelSpec
    folder: JobFolder
    root: Path
    start: JobStart
    opened: OpenedFiles
    read: VariableReads
    search_path: str
    """Its state before the code of the model could change it."""
    custom: CustomOps = NO_CUSTOM_OPS
    packages: dict[str, str] = field(default_factory=dict)
    """The packages and variables that other processes loaded and read, with states."""
    variables: dict[str, str] = field(default_factory=dict)
    operators: Mapping[str, int] = field(default_factory=dict)
    """The counted operators of the captured program or traced graph."""

    def announce(
        self, stage: Stage, opsets: tuple[OpsetJob, ...], *, only: CellId | None = None
    ) -> None:
        """Announce the next step and redirect output to its log.

        `only`: The cell of a check on one device; records of other devices remain valid.
        """
        cells = tuple(cell for opset in opsets for cell in self.job.list_opset_cells(opset))
        opset = None if stage in _SHARED_STAGES else opsets[0].opset
        redirect_output(self.folder.log(opset))
        announcement = Announcement(
            stage=stage,
            cells=(only,) if only is not None else cells,
            log=self.format_log_path(opset),
            part=self.job.part,
        )
        write_json(self.folder.announcement, announcement)

    def format_log_path(self, opset: int | None) -> str:
        """Return the final path of a log, relative to the build folder."""
        path = self.folder.log(opset).relative_to(self.folder.path)
        return f"{self.spec.id}/{path.as_posix()}"

    def write_failures(
        self,
        opsets: tuple[OpsetJob, ...],
        failure: Failure,
        seconds: Mapping[str, float],
        explain: Callable[[], Iterable[Fields]] | None = None,
    ) -> None:
        """Write the records of all cells of the opsets that a failure affects; then diagnose it."""
        records = []
        advice = self._list_withheld(is_failure=True)
        if failure.lines:
            line = quote_line(failure.lines[0], self.root)
            failure.message = f"{line}: {failure.message}"
        for opset in opsets:
            log = None if failure.stage in _SHARED_STAGES else opset.opset
            for cell in self.job.list_opset_cells(opset):
                record = Record.from_fields(
                    failure,
                    cell=cell,
                    advice=advice,
                    route=opset.route,
                    log=self.format_log_path(log),
                    seconds=dict(seconds),
                )
                records.append(self.write_record(record))
        if explain is not None:
            self.diagnose(records, explain)

    def add_report(self, report: CallReport) -> None:
        """Add the dependencies of a call in another process to those of the records."""
        self.opened.add_accesses(report.accesses)
        self.packages.update(report.packages)
        self.variables.update(report.variables)

    def diagnose(self, records: Sequence[Record], explain: Callable[[], Iterable[Fields]]) -> None:
        """Add the fields that `explain` yields to the written records of one failure.

        It runs in a process of its own, whose end changes no verdict. If all records are foreseen,
        it ends after the first fields. Missing memory is not diagnosed: each experiment needs more.
        """
        record = min(records, key=lambda each: each.undiagnosed)
        if record.status is Status.KILLED:
            return
        announcement = Announcement(
            stage=record.stage or Stage.PARITY,
            cells=tuple(each.cell for each in records),
            log=record.log,
            part=self.job.part,
            is_diagnosis=True,
        )
        write_json(self.folder.announcement, announcement)

        def explain_record() -> Iterator[str]:
            known: dict[str, Any] = {}
            for fields in islice(explain(), 1 if record.undiagnosed else None):
                known |= fields
                advice = (*known.get("advice", ()), *record.advice)
                explained = record.model_copy(update={**known, "advice": advice})
                yield self._rename_reference(explained).to_json()

        seconds = diagnosis_seconds(self.job.spec, len(self.job.cells()))
        with self.opened.separate():
            results, problem = collect_in_fork(explain_record, seconds)
        explained = Record.read(results[-1].encode()) if results else record
        fields = {name: getattr(explained, name) for name in _EXPLAINED}
        notes = (f"{DIAGNOSIS_NOTE}{problem}",) if problem else ()
        for each in records:
            update = {**fields, "notes": (*each.notes, *notes)}
            write_json(self.folder.record(each.cell), each.model_copy(update=update))

    def _rename_reference(self, record: Record) -> Record:
        """Return the record with the file in place of PyTorch if the source is an ONNX file."""
        if not self.spec.is_onnx_file:
            return record
        rename = partial(rename_reference, name=self.spec.oracle)
        checks = (
            each.model_copy(
                update={
                    "message": rename(each.message),
                    "metrics": {
                        key: rename(value) if isinstance(value, str) else value
                        for key, value in each.metrics.items()
                    },
                }
            )
            for each in record.checks
        )
        update: dict[str, object] = {
            "message": rename(record.message),
            "checks": tuple(checks),
            "notes": tuple(map(rename, record.notes)),
            "advice": tuple(map(rename, record.advice)),
        }
        if record.blame:
            evidence = tuple(map(rename, record.blame.evidence))
            update["blame"] = record.blame.model_copy(update={"evidence": evidence})
        return record.model_copy(update=update)

    def _list_withheld(self, *, is_failure: bool) -> tuple[str, ...]:
        """Return one text if the model reads variables that workers do not receive, else none."""
        names = self.read.list_withheld(is_failure=is_failure)
        text = f"{WITHHELD_NOTE}{join_names(names)}, which workers do not receive; add it to "
        return (f"{text}`environment` in [tool.exporter]",) if names else ()

    def write_record(self, record: Record) -> Record:
        """Write a record with everything that it depends on, and return it."""
        record = self._rename_reference(record)
        names = self.spec.list_data_files((record.cell.opset,))
        folder = (self.root / self.spec.manifest).parent
        steps = (folder / name for name in self.spec.step_files)
        data = (self.root / name for name in names)
        globs = (each.samples for each in self.spec.callers if ":" not in each.samples)
        files, folders = expand_globs(folder, (*self.spec.depends, *globs))
        programs = (folder / word for each in self.spec.callers for word in each.command)
        files += [path for path in programs if path.is_file()]  # a start of a program is no read
        declared = (*data, *self.custom.kernels.libraries, *steps, *files)
        accesses = self.opened.list_accesses()
        accesses = replace(accesses, listed=(*accesses.listed, *folders))
        # A record contains the versions of the packages in an environment instead of its files.
        interpreters = {
            Path(device.environment.interpreter)
            for opset in self.job.opsets
            for device in opset.devices
            if device.environment and device.environment.interpreter
        }
        interpreters |= {path.resolve() for path in interpreters}
        ignored = (
            self.folder.path,
            self.folder.temporary,
            self.job.kernels,
            *(path.parents[1] for path in sorted(interpreters)),
        )
        # A cell without its device has a file that passed, so it depends on no more than that file.
        is_sound = record.status in (Status.PASS, Status.UNAVAILABLE)
        text = record.to_json() if is_sound else None
        if has_interpreted_bytecode():
            EXECUTED.add_all()
        dependencies = digest_dependencies(
            self.root, self.start, accesses, ignored=ignored, declared=declared, text=text
        )
        root = self.root.resolve()
        used = (*(source.file for source in dependencies.sources), *dependencies.external)
        paths = [os.path.normpath(root / name) for name in used]
        # A cell that fails without the package runs again if it is installed.
        names = ("transformers",) if self.spec.generate else ()
        needed = {name: read_loaded_state(name, self.root) for name in names}
        advice = list(record.advice)
        if names and record.status.is_red:
            release = describe_release()
            if release not in record.message:
                advice.append(release)
        if record.status.is_red and record.route and record.route.exporter != "torchscript":
            installed = {n: read_tool_state(n).partition(" ")[0] for n in DISTRIBUTIONS}
            advice += list_silent_faults(installed)
        complete = mark_resource_failures(record, self.spec).model_copy(
            update={
                "notes": (
                    *record.notes,
                    *(() if record.advice else self._list_withheld(is_failure=False)),
                ),
                "advice": tuple(advice),
                "fingerprint": self.job.make_fingerprint(record.cell),
                "sources": dependencies.sources,
                "packages": {
                    **needed,
                    **list_loaded_packages(self.root, accesses.read),
                    **self.packages,
                    **dependencies.external,
                    SEARCH_PATH: self.search_path,
                },
                "variables": self.read.read_states(paths, root) | self.variables,
                "untracked": accesses.untracked,
                "torch_operators": dict(sorted(self.operators.items())),
            }
        )
        judged = apply_expectations(self.spec, complete)
        is_foreseen = judged.status is Status.XFAIL and not self.spec.thorough
        complete = complete.model_copy(update={"undiagnosed": is_foreseen})
        write_json(self.folder.record(record.cell), complete)
        return complete
