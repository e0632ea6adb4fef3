"""Compare a host with the client, and build the environment of its workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from exporter.cache.fingerprint import hash_device
from exporter.cache.states import (
    have_tools_changed,
    read_search_path,
    read_source_state,
    read_tool_parts,
)
from exporter.environments.installation import (
    InstallationFailure,
    find_environment,
    install_environment,
)
from exporter.jobs.job import Job
from exporter.manifest import Device, RuntimeEnvironment
from exporter.pipeline.cluster.protocol import RunContext
from exporter.processes.environment import list_shared_variables, make_worker_environment

PYTHON_PATH = "PYTHONPATH"
#: A variable has a value of its own on each host; the workers receive that of the client.
_VARIABLE_PART = "tool.torch_private"


def split_python_path(root: Path, value: str) -> tuple[str, ...]:
    """Return the folders of `PYTHONPATH`; those of the project are relative to its root."""
    real_root = root.resolve()
    folders = []
    for folder in filter(None, value.split(os.pathsep)):
        path = Path(os.path.realpath(folder))
        is_inside = path.is_relative_to(real_root)
        folders.append(path.relative_to(real_root).as_posix() if is_inside else str(path))
    return tuple(folders)


def make_host_variables(
    context: RunContext, root: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of the workers.

    Args:
        context: The run.
        root: The copy of the project.
        environment: The variables of the host.
    """
    shared = list_shared_variables(environment, context.patterns)
    values = {name: value for name, value in environment.items() if name not in shared}
    client_root = Path(context.root)
    folders = [str(root / folder) for folder in context.python_path]
    # A host can have other folders of packages. Those of the client's project are other files.
    folders += [
        folder
        for folder in filter(None, environment.get(PYTHON_PATH, "").split(os.pathsep))
        if folder not in folders and not Path(folder).resolve().is_relative_to(client_root)
    ]
    if folders:
        values[PYTHON_PATH] = os.pathsep.join(folders)
    else:
        values.pop(PYTHON_PATH, None)
    return make_worker_environment(values | dict(context.variables), context.patterns)


def find_tool_differences(context: RunContext) -> tuple[str, ...]:
    """Return how the packages of this host differ from those of the client."""
    if have_tools_changed():
        return ("its packages changed since its Dask worker started; restart the Dask worker",)
    ours = read_tool_parts()
    return tuple(
        f"{part.removeprefix('tool.')}: {ours.get(part) or 'missing'} instead of "
        f"{state or 'missing'}"
        for part, state in context.tools.items()
        if part != _VARIABLE_PART and ours.get(part, "") != state
    )


def find_differences(
    context: RunContext, root: Path, variables: Mapping[str, str]
) -> Iterator[str]:
    """Yield how the files around the copy of the project differ from those of the client."""
    state = read_search_path(root, variables.get(PYTHON_PATH, ""))
    if state != context.search_path:
        yield f"search path of Python: {state} instead of {context.search_path}"
    for name, target_state in context.targets.items():
        link = root / name
        if read_source_state(link.resolve()) != target_state:
            target = f"{name} -> {link.readlink()}"
            yield f"{target}: the file is missing or differs; copy it to the host"


def prepare_devices(job: Job, folder: Path) -> tuple[Job, tuple[str, ...]]:
    """Return the job with the interpreters of this host, and the differences of its devices.

    Args:
        job: The job of the client.
        folder: The folder for environments that this host lacks.
    """
    differences: dict[str, None] = {}
    devices: dict[str, Device] = {}
    for device in (each for opset in job.opsets for each in opset.devices):
        if device.name in devices:
            continue
        devices[device.name], problems = _prepare_device(job, device, folder)
        differences |= dict.fromkeys(problems)
    opsets = tuple(
        opset.model_copy(update={"devices": tuple(devices[d.name] for d in opset.devices)})
        for opset in job.opsets
    )
    return job.model_copy(update={"opsets": opsets}), tuple(differences)


def _prepare_device(job: Job, device: Device, folder: Path) -> tuple[Device, list[str]]:
    problems = []
    expected = job.device_parts.get(device.name, {}).get("device", "")
    if device.provider_library and hash_device(device) != expected:
        problems.append(f"{device.provider_library}: the file is missing or differs")
    environment = device.environment
    if environment is None or not environment.interpreter:
        return device, problems
    located = _locate(environment, folder)
    if located.problem:
        problems.append(f"environment {environment.name}: {located.problem}")
    return device.model_copy(update={"environment": located}), problems


def _locate(environment: RuntimeEnvironment, folder: Path) -> RuntimeEnvironment:
    """Return the environment on this host; its packages must be those of the client."""
    client_folder = Path(environment.interpreter).parents[2]
    installed = find_environment(environment.definition, client_folder)
    if installed is None or dict(installed.packages) != environment.packages:
        try:
            installed = install_environment(environment.definition, folder)
        except InstallationFailure as error:
            return environment.model_copy(update={"problem": str(error)})
    problem = _compare_packages(environment.packages, installed.packages)
    update = {"interpreter": str(installed.python), "problem": problem}
    return environment.model_copy(update=update)


def _compare_packages(expected: Mapping[str, str], actual: Mapping[str, str]) -> str:
    names: Iterable[str] = sorted({*expected, *actual})
    return ", ".join(
        f"{name}: {actual.get(name, 'missing')} instead of {expected.get(name, 'missing')}"
        for name in names
        if expected.get(name) != actual.get(name)
    )
