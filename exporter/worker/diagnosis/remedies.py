"""The causes of a red cell in the model, and the fixes: each is named only after it was tried.

Each experiment begins with the model in the state in which the export began.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import torch

from exporter.checks.protocol import CheckedFile, SampleCache
from exporter.core.check_table import STATE_PREFIXES, STATEFUL_PREFIX
from exporter.core.text import join_names
from exporter.jobs import JobFolder, Reference, list_groups
from exporter.manifest import Constant, Device, ModelSpec
from exporter.manifest.syntax.values import FIRST_DYNAMO_OPSET
from exporter.records.record import (
    AGREES,
    NO_SETTING,
    PROVED,
    TRACED_BRANCH,
    TRACER_PREFIX,
    Status,
)
from exporter.worker.dependencies.source_files import find_frame_line, find_model_file
from exporter.worker.diagnosis.divergence import (
    LAST_TORCHSCRIPT_OPSET,
    ReExport,
    export_variant,
    is_optimized,
    repeat_export,
)
from exporter.worker.diagnosis.fault_analysis import load_new_model
from exporter.worker.diagnosis.rewrites import RewrittenModel, list_rewritten_models
from exporter.worker.diagnosis.runtime_values import FileGraph
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.export.file_samples import add_file_samples
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.operator_calls import FunctionMode, create_mode
from exporter.worker.reference.python_state import ModelSnapshot, PythonState
from exporter.worker.reference.reference_run import compute_reference
from exporter.worker.reference.review import is_worth_review, review_reference
from exporter.worker.torch_private import internals
from exporter.worker.verify.run_checks import FileProof

DRAWS = "draws random numbers in each call"
UNOPTIMIZED = "options.optimize = false"
#: Opsets at which dynamo has other operators than at the one before.
_OPSETS = (FIRST_DYNAMO_OPSET, 20, 22, 23)
#: The last opset to which onnxscript converts; files of later ones are converted by `onnx`.
_LAST_CONVERTED_OPSET = 25
#: Opsets at which ONNX's operators accept further types.
_TYPE_OPSETS = (11, 13, 14, 16, 17)
_REJECTED_TYPE = r"unsupported type|no kernel|NOT_IMPLEMENTED"
_VALUES = r"GuardOnDataDependent|[Dd]ata-dependent (branching|expression)"
#: A Python loop over a size.
LOOP = r"\s*for .* in .*(\.shape|\.size\(|\blen\()"
#: The line of a condition of which the file has one branch, in a note of the export.
_CONDITION = re.compile(rf"({TRACER_PREFIX}|draft export: )(\S+:\d+): ")


#: Failures at a draw, at the read of its value, and in the finished file.
_DRAWN = (
    r"(\b|_)([Rr]andom)?([Nn]ormal|[Uu]niform|[Bb]ernoulli|[Mm]ultinomial|rand(n|int)?)(_like)?_?\b"
    rf"|Eq\(u\d+, 1\)|{_VALUES}|ignores input"
)
#: Runs of a model that may draw; a sample of few classes is often the same.
_DRAWING_RUNS = 20


def draws_numbers(func: Any, _result: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def reads_value(func: Any, _result: Any) -> bool:
    """Return True for the operator behind `if tensor:` and `item()`."""
    return str(internals.read_schema(func).name) == "aten::_local_scalar_dense"


def _skip_branches(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return False if func is torch.Tensor.__bool__ else func(*args, **kwargs)


def _stop_training(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **(kwargs | ({"training": False} if "training" in kwargs else {})))


def _draw_once(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return func(*args, **kwargs)


def _compute_in_float32(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Cast the arguments of a function to float32, and its result to their dtype."""
    tensors = [x for x in internals.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    narrow = [x.dtype for x in tensors if x.dtype in (torch.bfloat16, torch.float16)]
    if not narrow or getattr(func, "__name__", "_").endswith(("_", "to", "float")):
        return func(*args, **kwargs)

    def cast(x: Any, dtype: torch.dtype) -> Any:
        return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    args, kwargs = internals.tree_map(lambda x: cast(x, torch.float32), (args, kwargs))
    return internals.tree_map(lambda x: cast(x, narrow[0]), func(*args, **kwargs))


#: The text of a failure -> the operators at the line, if the failure has none, and a sentence.
_CAUSES: tuple[tuple[str, Any, str], ...] = (
    (
        r"ComplexFloat|complex types|number type: complex|complex-valued input",
        lambda _, result: isinstance(result, torch.Tensor) and result.is_complex(),
        "TorchScript's exporter has no complex numbers, and dynamo's only some",
    ),
    (
        r"exported program constant|requires grad|_backward\b",
        lambda func, _: str(internals.read_schema(func).name).endswith("_backward"),
        "no exporter keeps derivatives that `forward` computes",
    ),
    (
        r"differs from itself",
        draws_numbers,
        f"{{}} {DRAWS}",
    ),
    (
        "GridSample",
        lambda func, _: str(internals.read_schema(func).name) == "aten::grid_sampler_3d",
        "ONNX's GridSample takes 4 dimensions up to opset 19",
    ),
    (
        _VALUES,
        None,
        (
            "it needs a value of a tensor, and torch.export keeps one branch: use torch.where, "
            "which computes both"
        ),
    ),
    (r"static shape of \d+ for|specialized it to be", None, "the capture has this size only"),
    (
        r"'(int|float|bool)' object has no attribute 'name'|(?m:^.*output \d+ \([-\w.]+$)",
        None,
        "an output is a Python number that no input changes: return a tensor, or leave it out",
    ),
    (
        r"quantized::|fused_moving_avg_obs",
        None,
        "export the float model, and quantize its file in `passes`",
    ),
    (r"grouped_mm", None, 'set `experts_implementation = "batched_mm"` of transformers'),
    (
        r"(flex|flash)_att",
        None,
        (
            "call scaled_dot_product_attention with a tensor as the mask; in a model of "
            'transformers, set `attn_implementation = "sdpa"`'
        ),
    ),
)
#: The text of a failure -> the usual change of the line, as text and as calls of torch.
_CHANGES = (
    (_VALUES, "remove the condition", _skip_branches),
    ("float16", "compute in float32, with casts of inputs and outputs", _compute_in_float32),
)
_RANDOM_CHANGES = (
    ("set training = self.training there", _stop_training),
    ("draw the numbers once, when the model is built, or make them an input", _draw_once),
)


def find_cause(text: str, opset_export: OpsetExport) -> tuple[str, str]:
    """Return the line of the model and the sentence of a known cause, each "" if unknown."""
    for pattern, selects, sentence in _CAUSES:
        if re.search(pattern, text) and (lines := find_lines(opset_export, selects)):
            line, operator = next(iter(lines.items()))
            return line, sentence.format(operator)
    return "", ""


def find_draw(text: str, opset_export: OpsetExport) -> tuple[str, str]:
    """Return the line and the sentence of a draw that an export fails on, each "" if there is none.

    A model that draws the same numbers in each call is no cause.
    """
    lines = find_lines(opset_export, draws_numbers) if re.search(_DRAWN, text) else {}
    if not lines:
        return "", ""
    if agrees_with_itself(opset_export):
        return "", ""
    line, operator = next(iter(lines.items()))
    return line, f"{operator} {DRAWS}"


def agrees_with_itself(opset_export: OpsetExport) -> bool:
    """Run the model with several seeds; return whether each run has the same outputs."""
    first: list[Any] | None = None
    state = ModelSnapshot(opset_export.model)
    try:
        with torch.random.fork_rng(devices=()):
            for seed in range(_DRAWING_RUNS):
                torch.manual_seed(seed)
                outputs = run_model(opset_export.model, opset_export.spec, opset_export.inputs)
                leaves = internals.tree_leaves(outputs)
                first = first or leaves
                if not all(map(torch.equal, first, leaves)):
                    return False
    except Failure:
        return False
    finally:
        state.restore()
    return True


#: Operators that read the shape of a tensor and none of its values.
_SHAPE_ONLY = re.compile(r"aten::((zeros|ones|empty|full|rand|randn|randint)_like|new_\w+)$")


def find_lost_input(text: str, opset_export: OpsetExport) -> tuple[str, str]:
    """Return the last line that reads an input which the file ignores, and why it has no effect."""
    match = re.search(r"the graph ignores input '([^']+)'", text)
    tensor = opset_export.inputs.get(match[1]) if match else None
    if not isinstance(tensor, torch.Tensor):
        return "", ""
    carriers = [tensor]  # kept, so that no other tensor gets the storage of one
    reads: list[str] = []
    at, cause = "", ""
    is_read = False

    def is_carrier(value: Any) -> bool:
        storages = {each.untyped_storage().data_ptr() for each in carriers}
        return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in storages

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal at, cause, is_read
        result = func(*args, **kwargs)
        schema = internals.read_schema(func)
        leaves = internals.tree_leaves((args, kwargs))
        if _SHAPE_ONLY.match(str(schema.name)) or not any(map(is_carrier, leaves)):
            return result
        if line := find_frame_line(traceback.walk_stack(None), opset_export.root):
            reads.append(line)
        if reads_value(func, result):
            at, is_read = line, True
            cause = "it reads the value there, and the file has that of the example"
        for item, value in zip(schema.arguments, args, strict=False):
            is_written = item.alias_info is not None and item.alias_info.is_write
            if (
                is_written
                and value.numel() * value.element_size() < value.untyped_storage().nbytes()
            ):
                at, cause = line, "a trace loses a write through a view"
        carriers.extend(
            each for each in internals.tree_leaves(result) if isinstance(each, torch.Tensor)
        )
        return result

    state = ModelSnapshot(opset_export.model)
    is_used = True
    with suppress(Failure), create_mode(record):
        outputs = run_model(opset_export.model, opset_export.spec, opset_export.inputs)
        is_used = any(map(is_carrier, internals.tree_leaves(outputs)))
    state.restore()
    if reads and not is_read and not is_used:
        at, cause = reads[-1], "no output uses the result: remove the input, or use the result"
    return at, cause


def find_lines(opset_export: OpsetExport, selects: Any) -> dict[str, str]:
    """Run the model once in PyTorch; return the selected operators by their lines."""
    lines = {} if selects else {"": ""}

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if selects and selects(func, result):
            line = find_frame_line(traceback.walk_stack(None), opset_export.root)
            lines.setdefault(line, str(internals.read_schema(func).name))
        return result

    state = ModelSnapshot(opset_export.model)
    with suppress(Failure), create_mode(record):
        run_model(opset_export.model, opset_export.spec, opset_export.inputs)
    state.restore()
    return lines


def advise_on_random_numbers(opset_export: OpsetExport) -> tuple[str, ...]:
    """Return one line if PyTorch agrees with itself after a change."""
    for setting, change in _RANDOM_CHANGES:
        with FunctionMode(change):
            if agrees_with_itself(opset_export):
                return (f"{setting}: {AGREES}",)
    return ()


class _Experiment(NamedTuple):
    """Another export of the cell."""

    setting: str
    opset: int
    export: Callable[[], AbstractContextManager[ReExport]]
    change: Mapping[str, Any] = MappingProxyType({})
    rewritten: RewrittenModel | None = None


def find_remedies(
    opset_export: OpsetExport, checked: CheckedFile, text: str = ""
) -> tuple[str, ...]:
    """Return a line for the first other export whose file passes all checks on all devices.

    If a file keeps a branch of the example, the checks prove it for their values only, and the
    search continues.

    `checked`: The contract and PyTorch's outputs; its file need not exist.
    `text`: The message of the failed export or of the red record.
    """
    has_samples = bool(checked.reference.samples)
    if not opset_export.route.is_export or opset_export.spec.weights_are_inputs or not has_samples:
        return ()
    weaker: list[str] = []
    tried: list[str] = []
    folder = checked.folder.path
    for experiment in (
        *_list_experiments(opset_export, folder, text),
        *_list_rewrites(opset_export, checked),
        *_list_changed_entries(opset_export, checked.reference, folder, text),
    ):
        setting = experiment.setting
        try:
            line = _run(experiment, opset_export, checked)
        except Exception as error:  # such an experiment says nothing about the setting
            line = ""
            # Its text may have the folder of the experiment.
            tried.append(f"{setting} (ended with {type(error).__name__})")
        else:
            tried += [] if experiment.rewritten else [setting]
        if line:
            weaker.append(line)
        if line and "branch at" not in line:
            return (line, *weaker[:-1])
    failed = f"{NO_SETTING}: {join_names(tried, len(tried))} were tried"
    # A setting that needs no change of the model is better than the same one with a change.
    settings = [line.partition(": ")[0] for line in weaker]
    weaker = [line for line in weaker if not any(line.startswith(f"{e}, and ") for e in settings)]
    return tuple(weaker) or ((failed,) if tried else ())


def _list_experiments(opset_export: OpsetExport, folder: Path, text: str) -> Iterator[_Experiment]:
    opset, route = opset_export.opset, opset_export.route
    is_dynamo = route.exporter == "dynamo"
    if is_optimized(opset_export):
        unoptimized = partial(repeat_export, opset_export, folder, optimize=False)
        yield _Experiment(UNOPTIMIZED, opset, unoptimized)
    other, capture = ("torchscript", "trace") if is_dynamo else ("dynamo", "export")
    named = dict.fromkeys(re.findall(r"added in version (\d+)", text))
    others = (*_OPSETS, *([_LAST_CONVERTED_OPSET] if opset > _LAST_CONVERTED_OPSET else ()))
    opsets = sorted(others, key=lambda number: (number < opset, abs(number - opset)))
    opsets = opsets[:1] if opset < FIRST_DYNAMO_OPSET else opsets
    prefix = 'exporter = "torchscript" and ' if is_dynamo else ""
    with_types = [n for n in _TYPE_OPSETS if n > opset and re.search(_REJECTED_TYPE, text)]
    settings = [
        *([("opset 20 (dynamo)", "dynamo", "export", 20)] if "GridSample" in text else ()),
        (f'exporter = "{other}"', other, capture, opset),
        *((f"opset {n}", "torchscript", "trace", int(n)) for n in named),
        *((f"opset {n} (dynamo)", "dynamo", "export", n) for n in opsets),
        *((f"{prefix}opset {n}", "torchscript", "trace", n) for n in with_types),
        (f'{prefix}capture = "script"', "torchscript", "script", opset),
        *([('capture = "draft"', "dynamo", "draft", opset)] if is_dynamo else ()),
    ]
    for setting, exporter, kind, number in settings:
        is_late = exporter == "torchscript" and number > LAST_TORCHSCRIPT_OPSET
        if not is_late and (exporter, kind, number) != (route.exporter, route.capture, opset):
            export = partial(export_variant, opset_export, folder, exporter, kind, number)
            yield _Experiment(setting, number, export)
    for pattern, change, call in _CHANGES:
        if re.search(pattern, text):
            export = partial(
                export_variant, opset_export, folder, "torchscript", "trace", call=call
            )
            yield _Experiment(f'exporter = "torchscript", and {change}', opset, export)


def _list_rewrites(opset_export: OpsetExport, checked: CheckedFile) -> Iterator[_Experiment]:
    """Yield the model with other lines, by the exporter of the cell and by the other one."""
    routes = (("torchscript", "trace"), ("dynamo", "export"))
    usual = opset_export.route.exporter
    opset, folder = opset_export.opset, checked.folder.path
    for model in list_rewritten_models(opset_export, checked):
        change = {"outputs": model.outputs}
        spec = opset_export.spec.model_copy(update=change)
        new = replace(opset_export, spec=spec)
        for exporter, capture in sorted(routes, key=lambda route: route[0] != usual):
            is_late = exporter == "torchscript" and opset > LAST_TORCHSCRIPT_OPSET
            other = f'exporter = "{exporter}", and ' if exporter != usual else ""
            export = partial(export_variant, new, folder, exporter, capture, call=model.create())
            if not is_late:
                yield _Experiment(f"{other}{model.setting}", opset, export, change, model)


def _list_changed_entries(
    opset_export: OpsetExport, reference: Reference, folder: Path, text: str
) -> Iterator[_Experiment]:
    """Yield the entry without the inputs that a file ignores, and for fewer sizes."""
    spec = opset_export.spec
    route = opset_export.route
    changes = dict[str, dict[str, Any]]()
    match = re.search(r"the graph ignores input (('[^']+'(, | and )?)+)", text)
    if ignored := [item for item in spec.inputs if match and f"'{item.name}'" in match[1]]:
        tables = ", ".join(f"{{ at = '{item.at}' }}" for item in ignored)
        nones = tuple(Constant(at=item.at, value=None) for item in ignored)
        changes[f"in place of the input, `constants = [{tables}]`"] = {
            "inputs": tuple(item for item in spec.inputs if item not in ignored),
            "constants": (*spec.constants, *nones),
        }
    for axis, factor in product(spec.free_axes, range(2, 33)):
        size, *others = [sample.axes.get(axis.name, 1) for sample in reference.samples]
        sizes = {other for other in others if other % factor == 0 and other != size}
        is_mentioned = route.exporter == "dynamo" and re.search(rf"\b{axis.name}=\d", text)
        if is_mentioned and size % factor == 0 and len(sizes) > 1:
            narrow = axis.model_copy(update={"multiple_of": factor})
            setting = f"axes.{axis.name} = {{ example = {size}, multiple_of = {factor} }}"
            axes = {"axes": tuple(narrow if each == axis else each for each in spec.axes)}
            changes[f"{setting}, which promises less"] = axes
    for setting, change in changes.items():
        other = spec.model_copy(update=change)
        names = [item.name for item in other.inputs]
        inputs = {name: each for name, each in opset_export.inputs.items() if name in names}
        new = replace(opset_export, spec=other, inputs=inputs)
        export = partial(export_variant, new, folder, route.exporter, route.capture)
        yield _Experiment(setting, opset_export.opset, export, change)


def _run(experiment: _Experiment, opset_export: OpsetExport, checked: CheckedFile) -> str:
    """Return a sentence about the promises that the other file loses; "" if its checks fail.

    `checked`: The red file, with the samples that it was compared with.
    """
    spec = checked.spec.model_copy(update=experiment.change)
    opset_export = replace(
        opset_export, spec=opset_export.spec.model_copy(update=experiment.change)
    )
    state = ModelSnapshot(opset_export.model)
    try:
        with experiment.export() as other:
            scratch = JobFolder(other.path.parent)
            if rewritten := experiment.rewritten:
                model, root = opset_export.model, opset_export.root
                with FunctionMode(rewritten.create()):
                    reference = compute_reference(model, spec, root, scratch)
            else:
                reference = _select_promised_samples(checked.reference, spec)
                _link_samples(checked, reference, spec, scratch)
            if other.origin:  # another capture needs samples that this file lacks
                route = other.origin.route
                groups = list_groups(route, ())
                with FunctionMode(rewritten.create()) if rewritten else nullcontext():
                    reference = add_file_samples(
                        opset_export, scratch, reference, other.origin, groups, ()
                    )
                reference = reference.select(route)
            state.restore()  # the checks call the model, which must be as it was
            file = replace(
                checked,
                folder=scratch,
                opset=experiment.opset,
                samples=SampleCache(),
                reference=reference,
                spec=spec,
            )
            proof = FileProof(spec=spec, checked=file, route=opset_export.route)
            with FunctionMode(rewritten.create()) if rewritten else nullcontext():
                is_right = all(
                    _is_right(proof, device, opset_export) for device in opset_export.job.devices
                )
            return _describe_losses(experiment, opset_export, checked, other) if is_right else ""
    except Failure:  # an export that fails is no advice
        return ""
    finally:
        state.restore()


def _is_right(proof: FileProof, device: Device, opset_export: OpsetExport) -> bool:
    """Prove the file, with the review of PyTorch's samples that a cell gets."""
    record = proof.prove(device)
    checked = proof.checked
    if is_worth_review(record, checked.reference):
        for path in checked.folder.path.glob("**/*.pb"):  # links to the samples of the cell
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        model, spec = opset_export.model, checked.spec
        reference = review_reference(model, spec, checked.folder, checked.reference, record)
        proof.checked = replace(checked, reference=reference, samples=SampleCache())
        record = proof.prove(device, is_full=True)
    return record.status is Status.PASS


def _select_promised_samples(reference: Reference, spec: ModelSpec) -> Reference:
    """Return the reference without the sizes that a changed entry does not promise."""
    factors = {axis.name: axis.multiple_of for axis in spec.free_axes}
    samples = tuple(
        sample
        for sample in reference.samples
        if not any(size % factors.get(name, 1) for name, size in sample.axes.items())
    )
    return reference.model_copy(update={"samples": samples})


def _link_samples(
    checked: CheckedFile, reference: Reference, spec: ModelSpec, scratch: JobFolder
) -> None:
    """Link the files of the samples, with the numbers that the remaining inputs have now."""
    remaining = [number for number, item in enumerate(checked.spec.inputs) if item in spec.inputs]
    names = {f"input_{number}.pb": f"input_{new}.pb" for new, number in enumerate(remaining)}
    for sample in reference.promised_samples:
        folder = scratch.sample(sample.index)
        folder.mkdir()
        for file in checked.folder.sample(sample.index).iterdir():
            is_removed_input = file.name.startswith("input_") and file.name not in names
            if not is_removed_input:
                (folder / names.get(file.name, file.name)).hardlink_to(file)


def _describe_losses(
    experiment: _Experiment, opset_export: OpsetExport, checked: CheckedFile, other: ReExport
) -> str:
    text = f"{experiment.setting}: {PROVED}"
    if experiment.setting.startswith("exporter"):
        text += f" at opset {opset_export.opset}"
    text += experiment.rewritten.loss if experiment.rewritten else ""
    if replaced := _list_domains(checked.path) - _list_domains(other.path):
        text += f"; it replaces the operators of {join_names([*replaced])} by those of ONNX"
    notes = other.origin.notes if other.origin else ()
    lines = {match[2] for note in notes if (match := _CONDITION.match(note))}
    if branches := lines and lines.intersection(find_lines(opset_export, reads_value)):
        places = join_names(sorted(branches))
        text += f" for the checked values; it keeps the example's branch at {places}"
    return text


def _list_domains(path: Path) -> set[str]:
    return {node.domain for node in FileGraph(path).nodes} if path.is_file() else set()


def advise_on_kept_values(opset_export: OpsetExport, checked: CheckedFile) -> tuple[str, ...]:
    """Return one line if the file of a new model, which was not called before, passes."""
    new = replace(opset_export, model=load_new_model(opset_export))
    exporter, capture = opset_export.route.exporter, opset_export.route.capture
    export = partial(export_variant, new, checked.folder.path, exporter, capture)
    experiment = _Experiment("compute them in each call", opset_export.opset, export)
    return tuple(filter(None, [_run(experiment, new, checked)]))


#: Words in the names of statistics that a normalizer updates.
_STATISTICS = re.compile(r"mean|var|std|count|running|num_batches")


def advise_on_state(opset_export: OpsetExport, checked: CheckedFile) -> tuple[str, ...]:
    """Return the lines of a module that has the memory of a model as inputs and outputs."""
    if not checked.reference.unstable.startswith(STATE_PREFIXES):
        return ()
    model = load_new_model(opset_export)
    state, buffers = PythonState(model), BufferSnapshot(model)
    memories: dict[str, Any] = {}
    with suppress(Failure, AttributeError, TypeError):
        with buffers:
            run_model(model, opset_export.spec, opset_export.inputs)
            changed = [name for name in state.list_changes() if name.startswith("the attr")]
            names = [name.split("'")[1] for name in changed]
            memories = {name: attrgetter(name)(model) for name in names}
        memories |= {name: attrgetter(name)(model) for name in buffers.changed}
    names = [*memories]
    if names and all(_STATISTICS.search(name.rpartition(".")[2]) for name in names):
        text = f"keep the update of {join_names(names)} out of the exported call (`if self.training"
        return (f"{text}:`); trained statistics are weights of the file",)
    lines, inputs, outputs, results = [], [], [], []
    for name, value in memories.items():
        parts = value if isinstance(value, tuple) else (value,)
        if not parts or not all(isinstance(each, torch.Tensor) for each in parts):
            return ()
        word = name.rpartition(".")[2]
        words = [word] if len(parts) == 1 else [f"{word}_{index}" for index in range(len(parts))]
        joined = ", ".join(words)
        lines.append(f"self.model.{name} = {joined if len(parts) == 1 else f'({joined})'}")
        after = [f"{each}_out" for each in words]
        results.append(f"{', '.join(after)} = self.model.{name}")
        inputs += words
        outputs += after
    if not inputs:
        return ()
    arguments = [item.name for item in opset_export.spec.inputs]
    results.insert(0, f"y = self.model({', '.join(arguments)})")
    head = f"def forward(self, {', '.join((*arguments, *inputs))})"
    body = "; ".join((*lines, *results, f"return {', '.join(('y', *outputs))}"))
    text = (
        f"export a module with the memory as inputs, whose `self.model` is {type(model).__name__}"
    )
    return (f"{text}: `{head}: {body}`; `exporter add` writes its loop",)


def advise_on_weights(opset_export: OpsetExport, checked: CheckedFile) -> tuple[str, ...]:
    """Return one line if most weights of a finished file differ from those of the model."""
    weights = dict((*opset_export.model.named_parameters(), *opset_export.model.named_buffers()))
    shared, changed = 0, []
    with suppress(Exception):
        for name, value in ir.load(checked.path).graph.initializers.items():
            stored, weight = value.const_value, weights.get(name)
            if stored is not None and weight is not None and stored.shape == weight.shape:
                shared += 1
                numbers = np.asarray(stored.numpy(), np.float64)  # NumPy has no bfloat16
                if not np.array_equal(numbers, weight.detach().cpu().double().numpy()):
                    changed.append(name)
    if 2 * len(changed) <= shared:
        return ()
    differ = f"{len(changed)} of {shared} weights of the file differ from those of the model"
    return (f"{differ}, such as {changed[0]}: name the trained ones in `weights`",)


def find_kept_values(opset_export: OpsetExport, text: str = "") -> tuple[str, str]:
    """Return the line and the names of what a call keeps for the next one.

    `text`: The message of the record, which may name buffers that this call does not change.
    """
    model = load_new_model(opset_export)
    state, buffers = PythonState(model), BufferSnapshot(model)
    storages = {each.untyped_storage().data_ptr(): name for name, each in model.named_buffers()}
    writes: dict[str, str] = {}

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for item, value in zip(internals.read_schema(func).arguments, args, strict=False):
            is_written = item.alias_info is not None and item.alias_info.is_write
            name = storages.get(value.untyped_storage().data_ptr()) if is_written else None
            if name is not None and name not in writes:
                writes[name] = find_frame_line(traceback.walk_stack(None), opset_export.root)
        return func(*args, **kwargs)

    with buffers, suppress(Failure), create_mode(record):
        run_model(model, opset_export.spec, opset_export.inputs)
    names = [name.split("'")[1] for name in state.list_changes() if name.startswith("the attr")]
    named = re.search(rf"{STATEFUL_PREFIX} \(([^)]*)\)", text)
    named_buffers = (
        re.findall(r"[\w.]+", named[1]) if named else re.findall(r"buffer '(.*?)'", text)
    )
    names += buffers.changed or named_buffers
    last = "|".join(re.escape(name.partition("[")[0].rpartition(".")[2]) for name in names)
    line = next(filter(None, (writes.get(name) for name in names)), "")
    # Not the line of `__init__` that sets a memory to None.
    pattern = rf"\s*(?:[\w, ]+, )?self\.({last or '$'})\b[^=]*=(?!=)\s*(?!None\b)"
    line = line or find_code(opset_export, pattern)
    return line, f"a call keeps {join_names(names)} for the next one" if names else ""


def find_code(opset_export: OpsetExport, pattern: str) -> str:
    """Return the last line of a class of the model that matches, "" if none does."""
    for kind in dict.fromkeys(map(type, opset_export.model.modules())):
        with suppress(OSError, TypeError):  # a class without a file
            file = find_model_file(inspect.getfile(kind), opset_export.root)
            lines, first = inspect.getsourcelines(kind)
            numbers = [n for n, line in enumerate(lines, first) if file and re.match(pattern, line)]
            if numbers:
                return f"{file}:{numbers[-1]}"
    return ""


def find_traced_line(notes: Sequence[str], opset_export: OpsetExport) -> tuple[str, str]:
    """Return the line of the model whose result for the example is in the file, and a sentence."""
    prefix = "draft export: " if opset_export.spec.capture == "draft" else TRACER_PREFIX
    for note in notes:
        if note.startswith(prefix):
            line, _, text = note.removeprefix(prefix).partition(": ")
            is_branch = TRACED_BRANCH in text or "depends on values" in text
            return line, f"the file has the {'branch' if is_branch else 'number'} of the example"
    loop = find_code(opset_export, LOOP) if opset_export.route.capture == "trace" else ""
    return loop, "the trace repeats the loop as often as for the example"
