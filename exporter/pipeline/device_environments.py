"""Create the environments of devices and toolchains with `venv` and pip, once for each definition.

pip runs with the configuration of the user. An incomplete environment is removed and created again.
A lock serializes processes that create the same environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from exporter.core.device_name import DeviceName
from exporter.core.files import TEXT_LIMIT, read_regular_file, write_text
from exporter.core.text import join_lines
from exporter.manifest import Project, RuntimeEnvironment
from exporter.manifest.resolved.keys import STORE_AGE
from exporter.virtual_environments import (
    STAMP,
    EnvironmentDefinition,
    InstalledEnvironment,
    find_environment,
    find_interpreter,
    read_shared_packages,
)

_LINES_OF_MESSAGE = 12
_SECONDS = 1800.0
#: pip lists all versions of a package, in ascending order.
_KEY = re.compile(r"[0-9a-f]{16}")
_VERSIONS = re.compile(r"\(from versions: ([^)]+)\)")
_LISTED_VERSIONS = 5
#: The oldest Node with which ONNX Runtime Web is tested.
_MIN_NODE = 18
#: The beginning of a line with an error. A line that only names a log file gives no reason.
_ERROR = re.compile(r"ERROR: |npm (?:error|ERR!) (?!A complete log)(?:code |network )?(?=\S)")
#: `pip index` lists the newest version first.
_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
#: Run by an environment's own Python: print the version of each package.
_LIST_PACKAGES = """
import json, importlib.metadata as metadata
items = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
versions = {}
for name, version in items:
    versions.setdefault(name.lower().replace("_", "-"), version)
print(json.dumps(versions, sort_keys=True))
"""


class InstallationFailure(Exception):
    """The environment cannot be created on this machine; the text contains pip's message."""


def install_environment(
    definition: EnvironmentDefinition, folder: Path, *, update: bool = False
) -> InstalledEnvironment:
    """Return the environment; create it on its first use.

    If `update`, newer versions are installed if the index has some and the requirements allow them.

    Raises:
        InstallationFailure: if the interpreter does not exist or pip fails.
    """
    is_final = not update or definition.is_pinned
    if is_final and (existing := find_environment(definition, folder)):
        return existing
    location = folder / definition.key
    name = definition.python or sys.executable
    interpreter = shutil.which(str(Path(name).expanduser()) if name.startswith("~") else name)
    if interpreter is None:
        raise InstallationFailure(f"the interpreter '{name}' does not exist or is not on PATH")
    from filelock import FileLock  # loads asyncio

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{definition.key}.lock"):
        if existing := find_environment(definition, folder):
            if is_final:
                return existing  # another process created it meanwhile
            return _install_packages(definition, location, interpreter)
        shutil.rmtree(location, ignore_errors=True)
        try:
            if definition.npm_packages:
                return _install_with_npm(definition, location)
            return _create(definition, location, interpreter)
        except InstallationFailure:
            shutil.rmtree(location, ignore_errors=True)
            (folder / f"{definition.key}.lock").unlink(missing_ok=True)
            raise


def list_releases(package: str) -> tuple[str, ...]:
    """Return the releases that pip can install here, in ascending order.

    Raises:
        InstallationFailure: if the index has no such package, or no release for this Python.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "--no-input", "--", package]
    output = _run(command, f"{package} has no release here")
    listed = _AVAILABLE.search(output)
    return tuple(reversed(listed[1].split(", "))) if listed else ()


def _install_with_npm(definition: EnvironmentDefinition, location: Path) -> InstalledEnvironment:
    """Create a folder with `node_modules`, a link to Node and the stamp."""
    node, npm = shutil.which("node"), shutil.which("npm")
    install = f"install Node {_MIN_NODE} or later with npm, such as from https://nodejs.org"
    if node is None or npm is None:
        missing = "node" if node is None else "npm"
        raise InstallationFailure(f"{missing} is not on PATH; {install}")
    version = _run([node, "--version"], f"{node} does not start").strip()
    if int(version.lstrip("v").split(".")[0]) < _MIN_NODE:
        raise InstallationFailure(f"{node} is Node {version}, which is too old; {install}")
    (location / "bin").mkdir(parents=True)
    (location / "bin" / "node").symlink_to(node)
    names = definition.npm_packages
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    command = [npm, "install", "--prefix", str(location), *options, "--", *names]
    _run(command, f"npm cannot install {', '.join(names)}")
    manifests = [
        read_regular_file(path, TEXT_LIMIT) for path in location.glob("node_modules/*/package.json")
    ]
    packages = {each["name"]: each["version"] for each in map(json.loads, manifests)}
    stamp = {**definition.model_dump(mode="json"), "shared": [], "packages": packages}
    write_text(location / STAMP, json.dumps(stamp, indent=1) + "\n")
    return InstalledEnvironment(folder=location, packages=packages)


def _create(
    definition: EnvironmentDefinition, location: Path, interpreter: str
) -> InstalledEnvironment:
    # The running pip also installs into other environments of its Python; a copy of it takes time.
    options = ["--without-pip"] if _shares_pip(interpreter) else []
    _run([interpreter, "-m", "venv", *options, str(location)], "the environment cannot be created")
    if definition.adds_to_current:
        # The environment's own folder precedes those of this process, so its packages replace
        # others. `addsitedir` also processes the `.pth` files there, which editable installs need.
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        command = [str(find_interpreter(location)), "-I", "-c", code]
        packages = Path(_run(command, "the folder of the packages is unknown").strip())
        lines = [f"import site; site.addsitedir({folder!r})" for folder in _list_current_folders()]
        (packages / "_current_packages.pth").write_text("\n".join(lines) + "\n")
    return _install_packages(definition, location, interpreter)


def _install_packages(
    definition: EnvironmentDefinition, location: Path, interpreter: str
) -> InstalledEnvironment:
    """Install the newest versions that the requirements allow, and write the stamp."""
    python = find_interpreter(location)
    if definition.requirements:
        names = ", ".join(definition.requirements)
        is_shared = _shares_pip(interpreter)
        pip = [interpreter, "-m", "pip", "--python"] if is_shared else []
        pip += [str(python)] if is_shared else [str(python), "-m", "pip"]
        options = ["--no-input", "--disable-pip-version-check", "--upgrade"]
        command = [*pip, "install", *options, "--", *definition.requirements]
        _run(command, f"pip cannot install {names}")
    packages: dict[str, str] = json.loads(
        _run([str(python), "-I", "-c", _LIST_PACKAGES], "the packages cannot be listed")
    )
    shared = _list_current_folders() if definition.adds_to_current else []
    stamp = {**definition.model_dump(mode="json"), "shared": shared, "packages": packages}
    write_text(location / STAMP, json.dumps(stamp, indent=1) + "\n")
    return InstalledEnvironment(folder=location, packages=packages)


def _shares_pip(interpreter: str) -> bool:
    return interpreter == sys.executable and find_spec("pip") is not None


def _list_current_folders() -> list[str]:
    folders = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    folders += read_shared_packages(Path(sys.prefix))
    return [folder for folder in dict.fromkeys(folders) if Path(folder).is_dir()]


def _run(command: Sequence[str], problem: str) -> str:
    """Run a program and return its output.

    Raises:
        InstallationFailure: if it fails, with the end of its messages.
    """
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InstallationFailure(f"{problem}: no result after {_SECONDS:.0f} s") from error
    except OSError as error:
        raise InstallationFailure(f"{problem}: {error.strerror}") from error
    if result.returncode:
        raise InstallationFailure(f"{problem}: {_select_reason(result.stderr or result.stdout)}")
    return result.stdout


def _select_reason(output: str) -> str:
    """Return the errors of pip or npm, or the last lines of the output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [_ERROR.sub("", line) for line in lines if _ERROR.match(line)]
    reason = "; ".join((errors or lines)[-_LINES_OF_MESSAGE:])
    return _VERSIONS.sub(_select_newest, reason)


def _select_newest(match: re.Match[str]) -> str:
    """Return pip's list of hundreds of versions with the newest ones only."""
    versions = match[1].split(", ")
    if len(versions) <= _LISTED_VERSIONS:
        return match[0]
    return f"(newest versions: {', '.join(versions[-_LISTED_VERSIONS:])})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEnvironment:
    """An environment that was created."""

    folder: Path
    requirements: tuple[str, ...]
    age: float
    """Seconds since its last use."""

    @property
    def key(self) -> str:
        return self.folder.name

    def measure_size(self) -> int:
        """Return its bytes without links."""
        files = (Path(base, name) for base, _, names in os.walk(self.folder) for name in names)
        return sum(path.lstat().st_size for path in files if not path.is_symlink())


def list_environments(folder: Path) -> tuple[StoredEnvironment, ...]:
    """Return all complete environments in the order of their names."""
    environments = []
    for stamp in sorted(folder.glob(f"*/{STAMP}")):
        if not _KEY.fullmatch(stamp.parent.name) or stamp.parent.is_symlink():
            continue  # of another program
        try:
            requirements = tuple(json.loads(read_regular_file(stamp, TEXT_LIMIT))["requirements"])
            used = max(path.stat().st_mtime for path in (stamp, _find_lock(stamp.parent)))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being created or removed
        environment = StoredEnvironment(
            folder=stamp.parent, requirements=requirements, age=time.time() - used
        )
        environments.append(environment)
    return tuple(environments)


def mark_as_used(folder: Path) -> None:
    """Store the time of the last use of an environment; see `StoredEnvironment.age`.

    The time is that of its lock, because a change of the environment itself would count as one.
    """
    _find_lock(folder).touch()


def remove_environment(stored: StoredEnvironment) -> None:
    """Remove an environment that no process creates at the moment."""
    from filelock import FileLock  # loads asyncio

    lock = _find_lock(stored.folder)
    with FileLock(lock):
        shutil.rmtree(stored.folder, ignore_errors=True)
    lock.unlink(missing_ok=True)


def _find_lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def create_environment(
    definition: EnvironmentDefinition, folder: Path, name: str, on_note: Callable[[str], None]
) -> InstalledEnvironment:
    """Return the environment, and report its creation on its first use.

    Raises:
        InstallationFailure: if it cannot be created.
    """
    if not find_environment(definition, folder):
        on_note(f"creating the {name}: {', '.join(definition.requirements)}")
    installed = install_environment(definition, folder)
    mark_as_used(folder / definition.key)
    return installed


def create_environments(
    project: Project, devices: Collection[DeviceName], on_note: Callable[[str], None]
) -> Project:
    """Return the project with the interpreters of these devices' environments.

    `on_note` receives a message before an environment is created, and if that fails.
    """
    names, problems = {name.base for name in devices}, dict[str, str]()
    used = (each.environment for each in project.devices if each.name in names)
    for environment in {each.name: each for each in used if each}.values():
        name = f"environment {environment.name}"
        try:
            create_environment(environment.definition, project.environments_folder, name, on_note)
        except InstallationFailure as error:
            message = join_lines(f"{environment.location}: the {name} cannot be created: {error}")
            problems[environment.name] = message
            on_note(message)
    return locate_environments(project, problems)


def locate_environment(
    project: Project, runtime_environment: RuntimeEnvironment
) -> RuntimeEnvironment:
    """Return the environment, with its interpreter if it was created before."""
    installed = find_environment(runtime_environment.definition, project.environments_folder)
    if installed is None:
        return runtime_environment
    update = {"interpreter": str(installed.python), "packages": dict(installed.packages)}
    return runtime_environment.model_copy(update=update)


def locate_environments(project: Project, problems: Mapping[str, str] = {}) -> Project:
    """Return the project with the interpreters of all environments that were created before.

    `problems`: Why an environment cannot be created, by its name.
    """
    devices = list(project.devices)
    for number, device in enumerate(devices):
        if device.environment is not None:
            located = locate_environment(project, device.environment)
            located = located.model_copy(update={"problem": problems.get(located.name, "")})
            devices[number] = device.model_copy(update={"environment": located})
    return project.model_copy(update={"devices": tuple(devices)})


def list_garbage(project: Project) -> tuple[StoredEnvironment, ...]:
    """Return the created environments that the project does not declare.

    Other projects use the folder beside a shared store. There, only environments that were unused
    for the maximum age of the store's entries are returned.
    """
    declared = {environment.definition.key for environment in project.environments}
    declared |= {definition.key for definition in project.job_environments.values()}
    folder = project.environments_folder
    is_private = folder.is_relative_to(Path(project.root) / project.build)
    return tuple(
        environment
        for environment in list_environments(folder)
        if environment.key not in declared and (is_private or environment.age > STORE_AGE)
    )
