"""Create virtual environments with `venv` and pip, once for each definition.

pip runs with the configuration of the user. The file `environment.json` is written last, so that an
environment without it is incomplete: it is removed and created again. A lock serializes processes
that create the same environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from exporter.core.files import write_text
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.system import describe_platform

#: The prefix of a requirement that is a package of npm.
NPM = "npm:"
#: A requirement that only one version meets.
_PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[^\]]*\])?\s*==\s*[^*,;\s]+")


class EnvironmentDefinition(FrozenModel):
    """The packages of a virtual environment."""

    requirements: Items[str]
    """Requirements as pip reads them: `onnxruntime==1.17.3`; or all of npm, with a prefix:
    `npm:onnxruntime-web@1.30`."""
    python: str = ""
    """The interpreter, a path or a name on `PATH`; empty: the running one."""
    adds_to_current: bool = False
    """Whether the environment also has all packages of the running one. Its own packages replace
    them."""

    @property
    def key(self) -> str:
        """The name of the folder: a hash of the definition, the Python and the machine."""
        parts = [
            f"adds to {sys.prefix}" if self.adds_to_current else "separate",
            self.python or platform.python_version(),
            *describe_platform().split(),
            *sorted(self.requirements),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def npm_packages(self) -> tuple[str, ...]:
        """The packages of npm: `onnxruntime-web@1.30`."""
        return tuple(each.removeprefix(NPM) for each in self.requirements if each.startswith(NPM))

    @property
    def is_pinned(self) -> bool:
        """Whether the requirements allow one version of each package only."""
        return all(_PINNED.fullmatch(each.strip()) for each in self.requirements)


#: Written when all packages are installed: the definition and the versions of the packages.
STAMP = "environment.json"
_LINES_OF_MESSAGE = 12
_SECONDS = 1800.0
#: pip lists all versions of a package, in ascending order.
_VERSIONS = re.compile(r"\(from versions: ([^)]+)\)")
_LISTED_VERSIONS = 5
#: The oldest Node with which ONNX Runtime Web is tested.
_MIN_NODE = 18
#: The beginning of a line with an error; the one that names a log has no reason.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledEnvironment:
    """A virtual environment whose packages are installed."""

    folder: Path
    packages: Mapping[str, str]
    """The version of each package by its normalized name."""

    @property
    def python(self) -> Path:
        return find_interpreter(self.folder)

    @property
    def package_folder(self) -> Path:
        """The folder of the packages, if the environment has the running Python."""
        base = str(self.folder)
        return Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))


def find_environment(
    definition: EnvironmentDefinition, folder: Path
) -> InstalledEnvironment | None:
    """Return the environment if it was created before."""
    location = folder / definition.key
    try:
        stamp = json.loads((location / STAMP).read_text())
    except (OSError, ValueError):
        return None
    if not find_interpreter(location).exists():  # the interpreter that it links to was removed
        return None
    return InstalledEnvironment(folder=location, packages=stamp["packages"])


def read_shared_packages(prefix: Path) -> tuple[str, ...]:
    """Return the package folders of other environments that an environment uses.

    The prefix is the folder of the environment, such as `sys.prefix`.
    """
    try:
        folders = json.loads((prefix / STAMP).read_text())["shared"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # an environment of another program
    return tuple(folders)


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


def find_interpreter(location: Path) -> Path:
    """Return the path of an environment's Python, or of its Node."""
    if (node := location / "bin" / "node").is_symlink():
        return node
    return location / "bin" / "python"


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
    manifests = [path.read_text("utf-8") for path in location.glob("node_modules/*/package.json")]
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
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
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
        try:
            requirements = tuple(json.loads(stamp.read_text())["requirements"])
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


def remove_environment(environment: StoredEnvironment) -> None:
    """Remove an environment that no process creates at the moment."""
    from filelock import FileLock  # loads asyncio

    lock = _find_lock(environment.folder)
    with FileLock(lock):
        shutil.rmtree(environment.folder, ignore_errors=True)
    lock.unlink(missing_ok=True)


def _find_lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
