"""From candidates to published folders, a model at a time.

In: a manifest, candidates, a destination. Out: `PublishResult`, one for each candidate. A folder is made
in private, copied once more, and loaded and run from that copy by another process, before it is
put into place; onnx and the runtimes are imported there alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.build import BuildFolder
from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.core.errors import ExporterError
from exporter.core.sanitize import redact
from exporter.jobs.job_folder import write_value
from exporter.manifest import Manifest, ModelSpec
from exporter.tools.publish.candidates import Candidate
from exporter.tools.publish.card import card
from exporter.tools.publish.destination import place, why_occupied
from exporter.tools.publish.protocol import (
    Allowance,
    PublishRequest,
    PublishResponse,
    Target,
    VerifiedFile,
)
from exporter.tools.publish.published_folder import (
    Content,
    copy_model,
    describe,
    wrong_sums,
)

_COMMAND = (sys.executable, "-P", "-m", "exporter.tools.publish.child")
_TAIL = 2000
_Step = Literal["arrange", "hold"]
#: `staged` is put into place; `moved` is the copy that is tried.
_Place = Literal["staged", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """What became of one candidate."""

    candidate: Candidate
    problem: str = ""
    """Why it was not published; empty where it was."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """What all candidates share."""

    manifest: Manifest
    dest: Path
    """Absolute."""
    tools: dict[str, str]
    """What the results were made with."""
    environment: Mapping[str, str]
    """Of the process that loads and runs the files."""


def publish(
    shipment: PublishOptions,
    candidates: Sequence[Candidate],
    heard: Callable[[PublishResult], None],
) -> tuple[PublishResult, ...]:
    """Publishes every candidate that holds; `heard` is told of each as it is done.

    Raises:
        ExporterError: ENVIRONMENT, where another run is at work or a link stands in the way.
    """
    build = BuildFolder.of(shipment.manifest.project)
    done = []
    with build.locked():
        private = Path(tempfile.mkdtemp(prefix=".publish-", dir=shipment.dest))
        try:
            intact = ArtifactVerifier(build.path)
            for model, group in groupby(candidates, key=lambda candidate: candidate.model):
                folder = private / model
                folder.mkdir()
                for shipped in _Model(shipment, model, folder, build).ship(list(group), intact):
                    heard(shipped)
                    done.append(shipped)
                shutil.rmtree(folder)
        finally:
            shutil.rmtree(private, ignore_errors=True)
    return tuple(done)


class _Model:
    """The files of one model on their way; those with a problem go no further."""

    def __init__(
        self, shipment: PublishOptions, model: str, folder: Path, build: BuildFolder
    ) -> None:
        self._shipment = shipment
        self._spec = _with_call(shipment.manifest.model(model), build)
        self._folder = folder
        self._built = build.model(model).path.resolve()
        self._problems: dict[int, str] = {}
        self._notes: dict[int, list[str]] = {}
        self._allowed: dict[int, tuple[Allowance, ...]] = {}

    def ship(
        self, candidates: Sequence[Candidate], intact: ArtifactVerifier
    ) -> Iterator[PublishResult]:
        """All of the model's, in order."""
        for candidate in candidates:
            self._note(candidate, self._stage(candidate, intact))
        self._arrange(self._going(candidates))
        for candidate in self._going(candidates):
            self._note(candidate, self._move(candidate))
        self._hold(self._going(candidates))
        for candidate in self._going(candidates):
            place(self._path(candidate, "staged"), self._final(candidate))
        for candidate in candidates:
            yield PublishResult(
                candidate=candidate,
                problem=self._problems.get(candidate.opset, ""),
                notes=tuple(self._notes.get(candidate.opset, ())),
            )

    def _going(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [item for item in candidates if item.opset not in self._problems]

    def _note(self, candidate: Candidate, problem: str, notes: Sequence[str] = ()) -> None:
        if problem:
            self._problems[candidate.opset] = problem
        self._notes.setdefault(candidate.opset, []).extend(notes)

    def _arrange(self, candidates: Sequence[Candidate]) -> None:
        """Writes the test data, and then what describes the folder."""
        for candidate, found in self._ask("arrange", "staged", candidates):
            self._note(candidate, "; ".join(found.problems), found.notes)
            if not found.problems:
                self._allowed[candidate.opset] = found.allowed
                self._describe(candidate, found)

    def _hold(self, candidates: Sequence[Candidate]) -> None:
        """Loads and runs the copies."""
        for candidate, found in self._ask("hold", "moved", candidates):
            if candidate.warning:  # that it is red is why it is marked
                self._note(candidate, "", (*found.notes, *found.problems))
                continue
            said = "; ".join(found.problems)
            problem = f"it does not hold where it was copied to: {said}" if said else ""
            self._note(candidate, problem, found.notes)

    def _stage(self, candidate: Candidate, intact: ArtifactVerifier) -> str:
        """Copies the file; the answer is why it cannot be published."""
        again = f"run `exporter export {candidate.model}`"
        if why := why_occupied(self._final(candidate)):
            return why
        if why := intact.problem(candidate.artifact):
            return f"{why}; {again}"
        folder = self._path(candidate, "staged")
        folder.mkdir(parents=True)
        try:
            copy_model(candidate, self._built, folder)
        except ExporterError as error:
            return f"{error}; {again}"
        return ""

    def _describe(self, candidate: Candidate, found: VerifiedFile) -> None:
        project = self._shipment.manifest.project
        content = Content(
            spec=self._spec.at(candidate.opset),
            candidate=candidate,
            tools=self._shipment.tools,
            sets=found.sets,
            allowed=found.allowed,
        )
        text = card(content, Path(project.root) / project.templates)
        describe(content, text, self._path(candidate, "staged"))

    def _move(self, candidate: Candidate) -> str:
        """Copies the whole folder elsewhere and reads the hashes of the copy."""
        copy = self._path(candidate, "moved")
        shutil.copytree(self._path(candidate, "staged"), copy, symlinks=True)
        return "; ".join(wrong_sums(copy))

    def _target(self, candidate: Candidate, place: _Place) -> Target:
        project = self._shipment.manifest.project
        return Target(
            opset=candidate.opset,
            devices=tuple(project.device(item.cell.device) for item in candidate.records),
            folder=str(self._path(candidate, place)),
            allowed=self._allowed.get(candidate.opset, ()),
        )

    def _path(self, candidate: Candidate, place: _Place) -> Path:
        return self._folder / place / str(candidate.opset)

    def _final(self, candidate: Candidate) -> Path:
        return self._shipment.dest / candidate.model / str(candidate.opset)

    def _ask(
        self, step: _Step, place: _Place, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, VerifiedFile]]:
        """What the process that knows onnx says of each."""
        if not candidates:
            return
        folder = self._folder / step
        folder.mkdir()
        request = PublishRequest(
            step=step,
            spec=self._spec,
            root=str(Path(self._shipment.manifest.project.root).resolve()),
            built=str(self._built),
            targets=tuple(self._target(candidate, place) for candidate in candidates),
        )
        write_value(folder / "request.json", request)
        if problem := _run(folder, self._shipment.environment):
            for candidate in candidates:
                yield candidate, VerifiedFile(opset=candidate.opset, problems=(problem,))
            return
        answer = PublishResponse.model_validate_json((folder / "answer.json").read_bytes())
        yield from zip(candidates, answer.findings, strict=True)


def _run(folder: Path, environment: Mapping[str, str]) -> str:
    """Runs the process; the answer is why it has none."""
    ended = subprocess.run(
        [*_COMMAND, str(folder / "request.json")],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
        start_new_session=True,
    )
    if ended.returncode == 0 and (folder / "answer.json").is_file():
        return ""
    said = redact(ended.stderr[-_TAIL:], limit=_TAIL).strip()
    return f"the process that loads it ended with {ended.returncode}: {said}"


def _with_call(spec: ModelSpec, build: BuildFolder) -> ModelSpec:
    """The contract with the call that `inputs_from` made, which says the shapes of the inputs."""
    if spec.inputs_from is None:
        return spec
    try:
        text = build.model(spec.id).contract.read_bytes()
        made = ModelSpec.model_validate_json(text)
    except (OSError, ValidationError):
        return spec
    call = {"inputs": made.inputs, "axes": made.axes, "outputs": made.outputs}
    return spec.model_copy(update=call)
