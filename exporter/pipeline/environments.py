"""The packages of workers, devices and toolchains: require, create and use them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import tomli

from exporter.cache.states import read_distribution
from exporter.core.device_name import CURRENT_TOOLCHAIN, DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import format_requirement, join_lines
from exporter.environments import (
    STAMP,
    InstallationFailure,
    InstalledEnvironment,
    StoredEnvironment,
    find_environment,
    install_environment,
    list_environments,
    mark_as_used,
)
from exporter.manifest import Project, RuntimeEnvironment
from exporter.manifest.resolved.keys import STORE_AGE
from exporter.pipeline.build_folder import BuildFolder
from exporter.processes.fork_server_client import run_program
from exporter.records.record import RunRecord, read_run

#: The packages that every worker imports.
_WORKER_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def require_packages(names: Sequence[str] = _WORKER_PACKAGES, *, extra: str = "export") -> None:
    """Find packages that a child process imports.

    `extra` is the extra of this distribution that installs them.

    Raises:
        ExporterError: ENVIRONMENT, with the names of all missing packages.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExporterError(
            ExitCode.ENVIRONMENT,
            f"{', '.join(missing)} {verb} not installed here: the command needs "
            f"`pip install '{format_requirement(extra)}'`",
        )


def require_own_checkout(root: Path) -> None:
    """Require that models are not imported from another checkout of the project.

    A worktree has the same name as the checkout that is installed with `pip install -e`. If its
    modules are in a subfolder such as `src`, Python finds those of the installed checkout.

    Raises:
        ExporterError: ENVIRONMENT, with both folders.
    """
    try:
        settings = tomli.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        installed = distribution(settings["project"]["name"])
    except (OSError, ValueError, KeyError, TypeError, PackageNotFoundError):
        return  # another check reports an invalid file
    _, location = read_distribution(installed.metadata["Name"], "")
    links = [file.locate() for file in installed.files or () if file.name.endswith(".pth")]
    lines = [line for path in links for line in Path(path).read_text().splitlines()]
    names = (installed.read_text("top_level.txt") or "").split()
    is_flat = location in lines or any(
        (root / f"{name}{end}").exists() for name in names for end in ("", ".py")
    )
    if location and not is_flat and root.resolve() != Path(location).resolve():
        name, checkout = installed.metadata["Name"], root.resolve()
        message = (
            f"{name}: is installed from {location} (`pip install -e`), so its modules are not "
            f"those of {checkout}; run `pip install -e .` here, in an environment of this checkout"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def locate_environment(project: Project, environment: RuntimeEnvironment) -> RuntimeEnvironment:
    """Return the environment, with its interpreter if it was created before."""
    installed = find_environment(environment.definition, project.environments_folder)
    return _complete(environment, installed) if installed else environment


def locate_environments(project: Project) -> Project:
    """Return the project with the interpreters of all environments that were created before."""
    return _replace(project, (locate_environment(project, each) for each in _list_used(project)))


def create_environments(
    project: Project, devices: Collection[DeviceName], on_note: Callable[[str], None]
) -> Project:
    """Return the project with the interpreters of these devices' environments.

    `on_note` receives a message before an environment is created, and if that fails.
    """
    environments = []
    for environment in _list_used(project, {name.base for name in devices}):
        located = locate_environment(project, environment)
        if not located.interpreter:
            required = ", ".join(environment.requirements)
            on_note(f"creating the environment {environment.name}: {required}")
            try:
                installed = install_environment(environment.definition, project.environments_folder)
                located = _complete(environment, installed)
            except InstallationFailure as error:
                name = f"{environment.location}: the environment {environment.name}"
                problem = join_lines(f"{name} cannot be created: {error}")
                located = environment.model_copy(update={"problem": problem})
                on_note(problem)
        if located.interpreter:
            mark_as_used(project.environments_folder / environment.definition.key)
        environments.append(located)
    return _replace(project, environments)


def list_garbage(project: Project) -> tuple[StoredEnvironment, ...]:
    """Return the created environments that the project does not declare.

    Other projects use the folder beside a shared store. There, only environments that were unused
    for the maximum age of the store's entries are returned.
    """
    declared = {environment.definition.key for environment in project.environments}
    declared |= {toolchain.definition.key for toolchain in project.toolchains}
    folder = project.environments_folder
    is_private = folder.is_relative_to(Path(project.root) / project.build)
    return tuple(
        environment
        for environment in list_environments(folder)
        if environment.key not in declared and (is_private or environment.age > STORE_AGE)
    )


def _complete(
    environment: RuntimeEnvironment, installed: InstalledEnvironment
) -> RuntimeEnvironment:
    update = {"interpreter": str(installed.python), "packages": dict(installed.packages)}
    return environment.model_copy(update=update)


def _list_used(
    project: Project, devices: Collection[str] | None = None
) -> tuple[RuntimeEnvironment, ...]:
    """Return each environment of the devices once."""
    environments = {
        device.environment.name: device.environment
        for device in project.devices
        if device.environment and (devices is None or device.name in devices)
    }
    return tuple(environments.values())


def _replace(project: Project, environments: Iterable[RuntimeEnvironment]) -> Project:
    by_name = {environment.name: environment for environment in environments}
    devices = tuple(
        device.model_copy(update={"environment": by_name[device.environment.name]})
        if device.environment and device.environment.name in by_name
        else device
        for device in project.devices
    )
    return project.model_copy(update={"devices": devices})


def run_nested_export(
    project: Project,
    installed: InstalledEnvironment,
    build: BuildFolder,
    arguments: Iterable[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RunRecord:
    """Export with other packages and return the results.

    Raises:
        ExporterError: ENVIRONMENT if the export fails as a whole, or used other packages.
    """
    command = [str(installed.python), "-P", "-m", "exporter", "export"]
    command += ["--root", project.root, "--build", str(build.path)]
    command += ["--engine", "local", *arguments]
    code = run_program(command, environment, on_line)
    if code not in (ExitCode.OK, ExitCode.RED):
        message = f"the export with the other packages exited with code {code}; see its output"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    run = read_run(build.results)
    _require_versions(run, installed)
    return run


def _require_versions(run: RunRecord, installed: InstalledEnvironment) -> None:
    """Raise if the export used other versions than those of the environment.

    Otherwise a variable such as `PYTHONPATH` could hide the packages, and nothing would differ.

    Raises:
        ExporterError: ENVIRONMENT, with the versions.
    """
    problems = [
        f"{name} {run.tools[name]} instead of {version}"
        for name, version in installed.packages.items()
        if run.tools.get(name, version) != version
    ]
    if problems:
        message = (
            f"the export used {', '.join(problems)}; remove the other versions from PYTHONPATH"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def require_toolchain(project: Project, name: str) -> None:
    """Raise if this process lacks the packages of a toolchain.

    Raises:
        ExporterError: MANIFEST if the project has no such toolchain, else ENVIRONMENT.
    """
    if name == CURRENT_TOOLCHAIN:
        return
    try:
        toolchain = project.find_toolchain(name)
    except KeyError:
        message = f"--toolchain: no toolchain has the name '{name}'"
        raise ExporterError(ExitCode.MANIFEST, message) from None
    try:
        stamp = json.loads((Path(sys.prefix) / STAMP).read_text())
    except (OSError, ValueError):
        stamp = {}
    if stamp.get("requirements") != list(toolchain.requirements):
        message = f"--toolchain: {sys.prefix} lacks the packages of the toolchain {name}; run "
        message += "`exporter export` without --toolchain"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
