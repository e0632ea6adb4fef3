"""A job from its start to its records: load the model, compute the reference, run the steps."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exporter.cache.states import SEARCH_PATH, read_loaded_state
from exporter.checks.protocol import SampleCache
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.jobs import Job, JobFolder, OpsetJob, Reference, write_json
from exporter.manifest import ModelSpec
from exporter.records.record import INITIAL_WEIGHTS, Stage
from exporter.runtimes import import_driver, start_runtime_processes
from exporter.worker import instruments
from exporter.worker.callers import reference as callers
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.opened_files import OpenedFiles, watch_variables
from exporter.worker.dependencies.packages import watch_searches
from exporter.worker.dependencies.source_files import JobStart
from exporter.worker.export import chain_file, weight_interface
from exporter.worker.export_steps import Step, list_steps
from exporter.worker.inputs import data_files, inputs_from
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.job_output import JobOutput
from exporter.worker.model import captured_models, custom_ops, generation
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.source_loader import (
    LoadedModel,
    find_weights_of_calls,
    load_model_twice,
    require_names_in_order,
)
from exporter.worker.prepared_job import PreparedJob
from exporter.worker.process.failure import Failure, report_invalid_entry
from exporter.worker.process.fork_call import can_fork, run_in_fork
from exporter.worker.process.setup import keep_one_thread, seed_generators
from exporter.worker.recheck import recheck
from exporter.worker.reference import metric, rollout
from exporter.worker.reference.eager_run import run_model
from exporter.worker.reference.reference_run import (
    compute_reference,
    format_reference_notes,
)
from exporter.worker.verify.run_checks import (
    REFERENCE,
    StageTimes,
)

#: PyTorch's values for the check of a key, by the key.
_REFERENCES: Mapping[str, Callable[[Model, ModelSpec, Tensors, JobFolder, Path], object]] = {
    "callers": callers.compute_reference,
    "metric": metric.compute_reference,
    "rollout": rollout.compute_reference,
}


def run_steps(job: PreparedJob, steps: Sequence[Step]) -> None:
    """Run the steps one after the other, each with the model of this moment.

    A trace or a capture can change attributes, classes, global variables and settings of torch. So
    a record would depend on the other opsets of its job. Each step runs in a fork of this process,
    and the last one needs none. If a fork is impossible, each step restores the attributes of the
    model.
    """
    *others, last = steps
    output = job.output
    # The runtimes are imported once for all steps; a fork does not need their threads.
    # The import searches folders, which are then dependencies of each step, also of one that fails.
    devices = [device for opset in output.job.opsets for device in opset.devices]
    start_runtime_processes(devices)
    for runtime in {device.runtime for device in devices if device.environment is None}:
        import_driver(runtime)
    if others and can_fork():
        gc.freeze()  # the garbage collector of a fork would copy the memory of all objects
    for step in others:
        if not can_fork():
            step()
            continue
        with output.opened.separate():
            run_in_fork(step)
        job.use(Reference.read(read_regular_file(output.folder.reference, PROJECT_LIMIT)))
    last()


#: Captures and graphs are large and live until the end of the job. With Python's own thresholds,
#: a tenth of the time would be spent on searching them for garbage.
_GC_THRESHOLDS = (100_000, 20, 20)


def run_job(job: Job, *, traces_files: bool = False) -> None:
    """Run one job with one thread; as many jobs run at once as there are cores.

    `traces_files`: Whether to trace opened files below Python, which a process cannot undo.
    """
    keep_one_thread()
    gc.set_threshold(*_GC_THRESHOLDS)
    job_folder = JobFolder(Path(job.folder))
    output = JobOutput(
        job=job,
        spec=job.spec,
        folder=job_folder,
        root=Path(job.root),
        start=JobStart.measure(job_folder.job),
        opened=OpenedFiles(trace=traces_files),
        read=watch_variables(),
        search_path=read_loaded_state(SEARCH_PATH, Path(job.root)),
    )
    cache = SampleCache()
    opsets = []
    for opset in job.opsets:
        chain_file.copy_links(job, opset)  # before reads are recorded: their states are parts
        records = None
        if opset.reuse_from:  # only the checks run, on the existing file
            output.announce(Stage.PARITY, (opset,))
            records = recheck(job, opset, cache)
        if records is None:
            opsets.append(opset)
        for record in records or ():
            write_json(output.folder.record(record.cell), record)
    if opsets:
        watch_searches(output.root)
        EXECUTED.watch()
        with output.opened.watch():
            _export_opsets(output, tuple(opsets), cache)


def _export_opsets(output: JobOutput, opsets: tuple[OpsetJob, ...], cache: SampleCache) -> None:
    times = StageTimes()
    output.announce(Stage.SOURCE, opsets)
    if problems := output.spec.problems:
        output.write_failures(opsets, report_invalid_entry(problems), times)
        return
    seed_generators(output.spec.seed)  # `inputs_from` may be the first import of the file
    try:
        with times.measure(Stage.SOURCE):
            model, loaded = _load_model(output)
            names = weight_interface.resolve_weight_names(model, output.spec)
        with times.measure(REFERENCE):
            job = _compute_reference(output, model, names, loaded, cache, times)
    except Failure as failure:
        output.write_failures(opsets, failure, times)
        return
    run_steps(job, list_steps(job, opsets))


def _load_model(output: JobOutput) -> tuple[Model, LoadedModel]:
    root = output.root
    spec = data_files.resolve_file_sizes(inputs_from.resolve_inputs_from(output.spec, root), root)
    if spec != output.spec:
        write_json(output.folder.contract, spec)
    loaded = load_model_twice(spec, root)
    require_names_in_order(loaded.model, spec)
    if program := find_program(loaded.model):
        captured_models.require_matching_inputs(program, spec)
    model = wrap_with_call_objects(loaded.model, spec, root)
    output.spec, output.custom = spec, custom_ops.load_custom_ops(spec, root)
    return model, loaded


def _compute_reference(
    output: JobOutput,
    model: Model,
    names: Mapping[str, str],
    loaded: LoadedModel,
    cache: SampleCache,
    times: StageTimes,
) -> PreparedJob:
    spec = output.spec
    root = output.root
    job_folder = output.folder

    def call_once(other: Model) -> None:
        run_model(wrap_with_call_objects(other, spec, root), spec, inputs)

    reference = compute_reference(model, spec, root, job_folder, loaded.change)
    inputs = draw_inputs(spec, choose_usual_sets(spec)[0], root)
    weights, weight_inputs = weight_interface.describe_weights(
        model, spec, inputs, names, job_folder
    )
    # After the import of the model, whose code may silence them, too.
    has_captures = any(opset.route.exporter == "dynamo" for opset in output.job.opsets)
    silent = (
        *instruments.list_silent(has_captures=has_captures),
        *instruments.list_silent_recorders(output.opened, output.read, root),
    )
    update = {
        **{
            key: compute(model, spec, inputs, job_folder, root)
            for key, compute in _REFERENCES.items()
            if getattr(spec, key) and not (key == "metric" and spec.lacks_weights)
        },
        "weights": weights,
        "weight_inputs": weight_inputs,
        "constant_weights": loaded.constants,
        "unproved": {
            **reference.unproved,
            "": (
                *silent,
                *loaded.unproved,
                *("the metric, which initial weights do not have",)
                * bool(spec.metric and spec.lacks_weights),
                *generation.list_unproved_settings(model),
                *reference.unproved.get("", ()),
            ),
        },
    }
    reference = reference.model_copy(update=update)
    write_json(job_folder.reference, reference)
    of_calls = "" if loaded.initial else find_weights_of_calls(loaded, spec, root, call_once)
    which = loaded.initial or of_calls
    initial = (f"{INITIAL_WEIGHTS}{which}",) if which else ()
    return PreparedJob(
        output=output,
        model=model,
        inputs=inputs,
        names=names,
        weight_inputs=tuple(weight.name for weight in weight_inputs),
        notes=(*initial, *format_reference_notes(spec, reference)),
        reference=reference,
        samples=cache,
        times=times,
    )
