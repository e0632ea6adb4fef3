"""Virtual environments: their definitions, and those that were created before.

The file `environment.json` is written last, so an environment without it is incomplete.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.files import TEXT_LIMIT, read_regular_file
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
        return all(_PINNED.fullmatch(each.strip()) for each in self.requirements)


#: Written when all packages are installed: the definition and the versions of the packages.
STAMP = "environment.json"


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
    location = folder / definition.key
    try:
        stamp = json.loads(read_regular_file(location / STAMP, TEXT_LIMIT))
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
        folders = json.loads(read_regular_file(prefix / STAMP, TEXT_LIMIT))["shared"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # an environment of another program
    return tuple(folders)


def find_interpreter(location: Path) -> Path:
    """Return the path of an environment's Python, or of its Node."""
    if (node := location / "bin" / "node").is_symlink():
        return node
    return location / "bin" / "python"
