"""The first wrong link of a red chain, or the feeds that connect right links wrongly.

Each link has a source of its own: the file and PyTorch's module get the same values, those that the
files before it gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch

from exporter.checks.comparison.compare_samples import compare_samples, compare_values
from exporter.checks.protocol import CheckedFile, SampleData
from exporter.checks.rollout import check_rollout
from exporter.checks.sample_checks import SAMPLE_KINDS, select_samples
from exporter.core.files import PROJECT_LIMIT
from exporter.core.text import join_names
from exporter.jobs import Job, JobFolder, Reference, Sample
from exporter.manifest import Device, ModelSpec
from exporter.manifest.resolved.keys import DECODER, EMBEDDING, VECTORS, VISION, Generate, Part
from exporter.manifest.syntax.values import quote
from exporter.records.record import Record, Stage, Status
from exporter.runtimes import RunFailure, open_session
from exporter.runtimes.chain import ChainSession
from exporter.runtimes.session import Array, OnnxValue
from exporter.worker.diagnosis.explanation import Explanation
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.inputs.call import from_numpy, to_numpy
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.generation import GeneratorPart, select_part
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import run_model, to_value

#: The samples whose links are compared, and the other connections that are tried.
_MOST_SAMPLES, _MOST_TRIES = 16, 200
#: The part of a model with pictures that gives an output.
_PARTS: Mapping[str, Part] = {"image_features": VISION, VECTORS: EMBEDDING, "logits": DECODER}
#: The place of a value in the chain: a link and its input, or -1 and an output of the whole.
_Slot = tuple[int, str]


def explain_chain(
    record: Record, job: Job, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Explanation:
    """Yield the message with the first link that differs from its own PyTorch module."""
    failures = (each.message for each in record.checks if "the link '" in each.message)
    if record.stage is Stage.STRUCTURE and (failure := next(failures, "")):
        # A size that a link fixes: the run shows which one.
        yield {"message": f"{failure}; {record.message}"}
    if record.stage is not Stage.PARITY or record.status is not Status.FAIL:
        return
    check = record.check if record.check in SAMPLE_KINDS else "parity"
    samples = [each for each in select_samples(check or "", checked) if not each.error]
    steps = checked.reference.rollout if record.check == check_rollout.name else ()
    session = open_session(checked.path, device, checked.kernels)
    if not isinstance(session, ChainSession):
        return
    comparison = Comparison(job, checked, device, opset_export.root)
    for sample in (*steps, *samples)[:_MOST_SAMPLES]:
        if problem := comparison.find_wrong_link(session, sample):
            yield {"message": f"{problem}; {record.message}"}
            return
    for sample in (*steps, *samples)[:_MOST_SAMPLES]:
        if problem := comparison.find_other_part(session, sample, opset_export.model):
            yield {"message": f"{problem}; {record.message}"}
            return
    wrong = [sample for sample in samples if not comparison.is_right(session, sample)]
    if not wrong:
        return  # a loop or a metric can be wrong although each run is right
    if all(comparison.are_modules_right(session, sample) for sample in wrong[:_MOST_SAMPLES]):
        yield {"message": f"{_ERRORS_ADD_UP}; {record.message}"}
        return
    text = comparison.find_other_weights(opset_export.model)
    if not text:
        feeds = comparison.find_right_feeds(session, wrong)
        text = f"with {feeds}, the chain is right" if feeds else _NO_FEEDS
    yield {"message": f"{_ALL_RIGHT}: {text}; {record.message}"}


_ALL_RIGHT = "each link is right on what it gets, and the chain is another model than `source`"
_ERRORS_ADD_UP = (
    "each link is right on what it gets, and so are their PyTorch modules one after the other: the "
    "errors of the files add up; tighten `tolerance` of the links, or declare one for the chain"
)
_NO_FEEDS = "no exchange of feeds repairs it; compare `feeds` with the code of `source`"


@dataclass(slots=True)
class Comparison:
    """The links of a chain, with the modules of their sources."""

    job: Job
    checked: CheckedFile
    device: Device
    root: Path
    models: dict[str, Model] = field(default_factory=dict)

    def is_right(self, session: ChainSession, sample: Sample) -> bool:
        result = compare_samples("", [sample], self.checked, session, self.device.name)
        return result.status is Status.PASS

    def find_wrong_link(self, session: ChainSession, sample: Sample) -> str:
        """Return the first link whose file differs from PyTorch on a sample, or ""."""
        text = "is the first that is wrong"
        return self._find_difference(session, sample, self._load_source, text)

    def find_other_part(self, session: ChainSession, sample: Sample, complete_model: Model) -> str:
        """Return the first link that is another part than that of the whole model, or "".

        Only the parts of a model that generates are known.
        """
        if not isinstance(complete_model, GeneratorPart):
            return ""
        (source,) = complete_model.generator

        @cache
        def select(link_id: str) -> Model | None:
            spec = self._find_spec(link_id)
            names = {item.name for item in spec.outputs}
            part = next((part for name, part in _PARTS.items() if name in names), None)
            generate = spec.generate or (Generate(part=part) if part else None)
            return select_part(source, spec, generate) if generate else None

        text = "is right on what it gets, and another part than that of `source`"
        return self._find_difference(session, sample, lambda spec: select(spec.id), text)

    def _find_difference(
        self,
        session: ChainSession,
        sample: Sample,
        find_model: Callable[[ModelSpec], Model | None],
        text: str,
    ) -> str:
        folder = self.checked.folder.locate(sample)
        read = self.checked.samples.read(folder, self.checked.spec)
        values: dict[str, OnnxValue] = dict(read.inputs)
        prefix = "" if sample.kind == "declared" else f"{sample.name}: "
        for index, link in enumerate(session.links):
            try:
                given = session.run_link(index, values)
            except RunFailure as failure:
                return f"{prefix}{failure}"
            spec = self._find_spec(link.id)
            inputs = {name: np.asarray(values[source]) for name, source in link.inputs.items()}
            outputs = [given[link.outputs[item.name]] for item in spec.outputs]
            try:
                model = find_model(spec)
            except Failure as failure:
                return f"{prefix}the link '{link.id}': {failure.message}"
            if model is not None and (problem := self._compare(model, spec, inputs, outputs)):
                return f"{prefix}the link '{link.id}' {text}: {problem}"
            values |= given
        return ""

    def _load_source(self, spec: ModelSpec) -> Model:
        if spec.id not in self.models:
            model = load_model(spec, self.root)
            self.models[spec.id] = wrap_with_call_objects(model, spec, self.root)
        return self.models[spec.id]

    def _find_spec(self, link_id: str) -> ModelSpec:
        """Return the contract of a link, with the call of its function if it has one."""
        declared = next(each for each in self.job.links if each.id == link_id)
        folder = JobFolder(Path(self.job.build) / link_id)
        contract = folder.contract
        written = ModelSpec.find(contract, PROJECT_LIMIT) if declared.inputs_from else None
        return (written or declared).resolve_cell(self.checked.opset, self.device.name)

    def _run_module(
        self, model: Model, spec: ModelSpec, inputs: Mapping[str, Array]
    ) -> list[OnnxValue]:
        """Return the outputs of a PyTorch module with the contract of a link.

        Raises:
            Failure: If it rejects the inputs.
        """
        tensors = {
            item.name: from_numpy(inputs[item.name], is_complex=item.is_complex)
            for item in spec.inputs
        }
        return [to_value(each) for each in run_model(model, spec, tensors)]

    def _compare(
        self,
        model: Model,
        spec: ModelSpec,
        inputs: Mapping[str, Array],
        outputs: Sequence[OnnxValue],
    ) -> str:
        """Return how the outputs of a link's file differ from those of a module, or ""."""
        try:
            expected = self._run_module(model, spec, inputs)
        except Failure as failure:
            return f"its PyTorch module fails on what it gets: {failure.message}"
        folder = JobFolder(Path(self.job.build) / spec.id)
        reference = Reference.find(folder.reference, PROJECT_LIMIT)
        if reference is None or len(expected) != len(outputs):
            return ""
        checked = CheckedFile(
            folder=folder, opset=self.checked.opset, spec=spec, reference=reference, root=self.root
        )
        data = SampleData(
            inputs=inputs, outputs=tuple(expected), float64_outputs=(None,) * len(expected)
        )
        declared = next(each for each in reference.samples if each.kind == "declared")
        sample = declared.model_copy(update={"exact": False, "undefined": (), "noise": ()})
        compared = compare_values(outputs, data, sample, checked, self.device.name)
        problems = [f"{name}: {each.problem}" for name, each in compared if each.problem]
        return problems[0] if problems else ""

    def are_modules_right(self, session: ChainSession, sample: Sample) -> bool:
        """Return whether the links' PyTorch modules, connected as the files, give the whole."""
        data = self.checked.read(sample)
        values: dict[str, OnnxValue] = dict(data.inputs)
        for link in session.links:
            spec = self._find_spec(link.id)
            inputs = {name: np.asarray(values[source]) for name, source in link.inputs.items()}
            try:
                outputs = self._run_module(self._load_source(spec), spec, inputs)
            except Failure:
                return False
            values |= {
                link.outputs[item.name]: value
                for item, value in zip(spec.outputs, outputs, strict=False)
            }
        outputs = [values[name] for name in session.sources if name in values]
        compared = compare_values(outputs, data, sample, self.checked, self.device.name)
        return len(outputs) == len(session.sources) and not any(c.problem for _, c in compared)

    def find_other_weights(self, complete_model: Model) -> str:
        """Return the first link with weights that the whole does not have, or ""."""
        for link_id, model in self.models.items():
            if others := _list_other_weights(model, complete_model):
                text = f"the link '{link_id}' has other weights: {join_names(others)}"
                return f"{text}; give it those of the whole, by `weights` or the same `seed`"
        return ""

    def find_right_feeds(self, session: ChainSession, samples: Sequence[Sample]) -> str:
        """Return the smallest change of the feeds with which all samples are right, or ""."""
        for change in islice(_list_changes(session, self.checked.spec), _MOST_TRIES):
            links = [
                replace(
                    link,
                    inputs={n: change.get((index, n), v) for n, v in link.inputs.items()},
                )
                for index, link in enumerate(session.links)
            ]
            names = [change.get((-1, name), name) for name in session.output_names]
            other = session.rewire(links, names)
            if all(self.is_right(other, sample) for sample in samples[:_MOST_SAMPLES]):
                return self._format(session, change)
        return ""

    def _format(self, session: ChainSession, change: Mapping[_Slot, str]) -> str:
        """Return the change in the notation of the manifest."""
        sources = {
            value: f"{link.id}.{name}"
            for link in session.links
            for name, value in link.outputs.items()
        }
        feeds = []
        for (index, name), value in change.items():
            target = name if index < 0 else quote(f"{session.links[index].id}.{name}")
            feeds.append(f"{target} = {quote(sources.get(value, value))}")
        return f"`feeds = {{ {', '.join(feeds)} }}`"


def require_same_initial_weights(job: Job, root: Path, complete_model: Model) -> None:
    """Compare the weights of links with the whole's, if initial values replace a missing file.

    Raises:
        Failure: At stage `convert`, if a link has others: the chain is right with the file only.
    """
    if not any(spec.lacks_weights for spec in (job.spec, *job.links)):
        return
    for spec in job.links:
        if others := _list_other_weights(load_model(spec, root), complete_model):
            text = f"the link '{spec.id}' has other initial values than the whole: "
            text += f"{join_names(others, 2)}; the file of weights has those of both"
            raise Failure(Stage.CONVERT, text, status=Status.UNAVAILABLE)


def _list_other_weights(model: Model, complete_model: Model) -> list[str]:
    """Return the names of weights of a link that the whole does not have."""
    known = {_digest_tensor(each) for each in _list_weights(complete_model).values()}
    weights = _list_weights(model)
    return [name for name, each in weights.items() if _digest_tensor(each) not in known]


def _list_weights(model: Model) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _digest_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    array = np.ascontiguousarray(to_numpy(tensor))
    return (array.dtype.name, array.shape, hashlib.sha256(array.tobytes()).hexdigest())


def _list_changes(session: ChainSession, spec: ModelSpec) -> Iterator[dict[_Slot, str]]:
    """Yield changes of one or two feeds that keep the order of the links."""
    made = dict.fromkeys((item.name for item in spec.inputs), -1)
    for index, link in enumerate(session.links):
        made |= dict.fromkeys(link.outputs.values(), index)
    slots: dict[_Slot, str] = {
        (index, name): value
        for index, link in enumerate(session.links)
        for name, value in link.inputs.items()
    }
    slots |= {(-1, name): name for name in session.output_names}

    def is_possible(slot: _Slot, value: str) -> bool:
        index = slot[0]
        return made[value] < index if index >= 0 else made[value] >= 0

    for (one, first), (other, second) in combinations(slots.items(), 2):
        is_exchange = is_possible(one, second) and is_possible(other, first)
        if first != second and is_exchange:
            yield {one: second, other: first}
    for slot, current in slots.items():
        for value in made:
            if value != current and is_possible(slot, value):
                yield {slot: value}
