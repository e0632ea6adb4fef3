"""The steps of a job that export: each begins with the model as the reference left it.

A trace or a capture can change attributes, classes, global variables and settings of torch. So a
record would depend on the other opsets of its job. Each step runs in a fork of this process, and
the last one needs none. If a fork is impossible, each step restores the attributes of the model.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from exporter.checks.files.sample_files import SampleCache
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.jobs import Reference
from exporter.runtimes import import_driver, start_runtime_processes
from exporter.worker.job_output import JobOutput
from exporter.worker.process.fork_call import can_fork, run_in_fork


@dataclass(frozen=True, slots=True)
class Samples:
    """PyTorch's outputs, as all later checks of the job use them."""

    reference: Reference
    cache: SampleCache


#: It returns the samples for the next step.
Step: TypeAlias = Callable[[Samples], Samples]


def run_steps(output: JobOutput, steps: Sequence[Step], samples: Samples) -> None:
    """Run the steps one after the other, each with the model of this moment."""
    *others, last = steps
    _import_runtimes(output)
    if others and can_fork():
        gc.freeze()  # the garbage collector of a fork would copy the memory of all objects
    for step in others:
        if not can_fork():
            samples = step(samples)
            continue
        with output.opened.separate():
            run_in_fork(partial(_run_step, step, samples))
        reference = Reference.read(read_regular_file(output.folder.reference, PROJECT_LIMIT))
        samples = Samples(reference, SampleCache())
    last(samples)


def _run_step(step: Step, samples: Samples) -> None:
    step(samples)


def _import_runtimes(output: JobOutput) -> None:
    """Import the runtimes once for all steps; a fork does not need the threads that they start.

    The import searches folders, which are then dependencies of each step, also of one that fails.
    """
    devices = [device for opset in output.job.opsets for device in opset.devices]
    start_runtime_processes(devices)
    for runtime in {device.runtime for device in devices if device.environment is None}:
        import_driver(runtime)
