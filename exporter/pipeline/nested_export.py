"""Run `exporter export` with the packages of another environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from exporter.core.errors import ExitCode, ExporterError
from exporter.environments.installation import InstalledEnvironment
from exporter.manifest import Project
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.processes.program import run_program
from exporter.records.record import RunRecord, read_run


def run_nested_export(
    project: Project,
    installed: InstalledEnvironment,
    build: BuildFolder,
    arguments: Iterable[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RunRecord:
    """Export with other packages and return the results.

    Args:
        project: The project.
        installed: The environment with the packages.
        build: The build folder of the results.
        arguments: More arguments of `export`.
        environment: The environment variables.
        on_line: Receives each line of the output.

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
