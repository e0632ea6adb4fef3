"""Export the cells of `cpu@NAME`: another environment delivers the results of such a device.

Each toolchain has a process with its packages, and a part of the build folder.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.core.text import join_lines, pluralize
from exporter.core.toml_table import SETTINGS_FILE, SETTINGS_KEYS
from exporter.manifest import Project
from exporter.manifest.syntax.toml_file import TomlFile, read_toml
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import Decisions
from exporter.pipeline.device_environments import InstallationFailure, create_environment
from exporter.pipeline.supervisor import Build
from exporter.planning.plan import PlannedCell
from exporter.processes.fork_server_client import signal_group
from exporter.records.record import Record, RunRecord, Status, read_run
from exporter.virtual_environments import InstalledEnvironment

#: Overrides the store of the project.
_STORE_VARIABLE = "EXPORTER_STORE"
#: The beginning of the line that a nested export prints for each finished model.
DONE = "done: "
#: Seconds in which an interrupted program stores its finished results.
_GRACE = 10.0
#: The program that runs in the environment of a toolchain.
NESTED_COMMAND = "exporter.commands.toolchains.nested_command"


def export_parts(build: Build, decisions: Decisions) -> None:
    """Export the cells of each toolchain that has cells to run."""
    project, on_note = build.manifest.project, build.observer.on_note
    by_suffix: dict[str, list[PlannedCell]] = {}
    for planned in decisions.to_run:
        if not build.stored.build.owns(planned.cell):
            by_suffix.setdefault(planned.cell.device.suffix, []).append(planned)
    for name, cells in by_suffix.items():
        definition, folder = project.job_environments[name], project.environments_folder
        try:
            installed = create_environment(definition, folder, f"toolchain {name}", on_note)
        except InstallationFailure as error:
            location = _locate_table(project, name)
            message = f"{location}: the toolchain {name} cannot be created: {error}"
            _write_unavailable(build, cells, join_lines(message))
            continue
        build.validator.fingerprints.forget_devices()
        try:
            _export_part(build, name, installed, cells)
        except ExporterError as error:
            for problem in error.problems:
                on_note(f"toolchain {name}: {problem}")
        finally:
            build.stored.discard_parts()


def _locate_table(project: Project, name: str) -> str:
    """Return the line of a toolchain: `pyproject.toml:12`."""
    file = read_toml(Path(project.root) / SETTINGS_FILE, SETTINGS_FILE)
    lines = file.lines if isinstance(file, TomlFile) else {}
    return f"{SETTINGS_FILE}:{lines.get((*SETTINGS_KEYS, 'toolchains', name), 1)}"


def _export_part(
    build: Build,
    name: str,
    installed: InstalledEnvironment,
    cells: Sequence[PlannedCell],
) -> None:
    """Run the export of one toolchain and report its results.

    Raises:
        ExporterError: ENVIRONMENT if the export fails as a whole.
    """
    options = build.options
    observer = build.observer
    stored = build.stored
    observer.on_note(f"toolchain {name}: exporting {pluralize(len(cells), 'cell')}")
    arguments = [f"--suffix={name}", f"--jobs={build.engine.local_workers}"]
    if options.force:
        arguments.append("--force")
    if options.thorough:
        arguments.append("--thorough")
    environment = dict(options.environment)
    if build.store:
        environment[_STORE_VARIABLE] = str(build.store.path)
    else:
        arguments.append("--no-store")
    arguments += ["--", *(str(planned.cell) for planned in cells)]

    def handle_line(line: str) -> None:
        if not line.startswith(DONE):
            observer.on_note(f"toolchain {name}: {line}")
            return
        model_id = line.removeprefix(DONE)
        stored.discard_parts()
        _report_model(build, model_id, cells)

    run_nested_export(
        build.manifest.project,
        installed,
        stored.build.find_part(cells[0].cell),
        arguments,
        environment,
        handle_line,
    )


def _report_model(build: Build, model_id: str, cells: Iterable[PlannedCell]) -> None:
    red = []
    for planned in cells:
        if planned.cell.model == model_id and (record := build.stored.get(planned.cell)):
            record = build.validator.apply_expectations(record)
            build.observer.on_cell_done(record)
            if record.status.is_red:
                red.append(record.cell)
    build.observer.on_model_done(model_id)
    if build.options.fail_fast and red:
        raise StoppedByFailure(str(red[0]))


def _write_unavailable(build: Build, cells: Sequence[PlannedCell], message: str) -> None:
    """Store and report that the toolchain of these cells cannot be installed."""
    build.observer.on_note(message)
    for planned in cells:
        record = Record(
            cell=planned.cell,
            status=Status.UNAVAILABLE,
            message=message,
            route=planned.route,
            fingerprint=build.validator.fingerprints.get_cell_parts(planned.cell),
        )
        build.stored.write_to_part(record)
    for model_id in dict.fromkeys(planned.cell.model for planned in cells):
        _report_model(build, model_id, cells)


def run_nested_export(
    project: Project,
    installed: InstalledEnvironment,
    build_folder: BuildFolder,
    arguments: Iterable[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
) -> RunRecord:
    """Export with other packages and return the results.

    Raises:
        ExporterError: ENVIRONMENT if the export fails as a whole, or used other packages.
    """
    command = [str(installed.python), "-P", "-m", NESTED_COMMAND]
    command += ["--root", project.root, "--build", str(build_folder.path)]
    command += arguments
    code = run_program(command, environment, on_line)
    if code not in (ExitCode.OK, ExitCode.RED):
        message = f"the export with the other packages exited with code {code}; see its output"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    run = read_run(build_folder.results)
    # A variable such as `PYTHONPATH` could hide the packages, and nothing would differ.
    problems = [
        f"{name} {run.tools[name]} instead of {version}"
        for name, version in installed.packages.items()
        if run.tools.get(name, version) != version
    ]
    if problems:
        used, fix = ", ".join(problems), "remove the other versions from PYTHONPATH"
        raise ExporterError(ExitCode.ENVIRONMENT, f"the export used {used}; {fix}")
    return run


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    seconds: float | None = None,
) -> int:
    """Run a program and return its exit code, less than 0 for a signal.

    `seconds`: The time after which the program and its children are killed.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = threading.Timer(seconds or 0, signal_group, (process.pid, signal.SIGKILL))
    if seconds is not None:
        deadline.start()
    try:
        for line in _read_lines(process):
            on_line(line)
        return process.wait()
    except BaseException:
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        deadline.cancel()
        if process.stdout:
            process.stdout.close()


def _read_lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of a process until it ends; a service that it started keeps the pipe open."""
    rest, stream = b"", process.stdout
    while stream is not None:
        has_ended = process.poll() is not None
        if select.select([stream], [], [], 0 if has_ended else 0.1)[0]:
            if not (data := os.read(stream.fileno(), 1 << 16)):
                break
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        elif has_ended:
            break
    if rest:
        yield rest.decode("utf-8", "replace")
