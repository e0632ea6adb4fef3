"""States of all files and folders that a model was built from.

The worker lists the files when its work is done, so an import inside `forward` is included.
Installed packages are in `packages.py`, and this tool's modules are in the fingerprint
(`tool.exporter`). A link is a dependency of its own: its text decides which file is read.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import FrameType

from exporter.cache.code_blocks import TEXT, VERSION, format_blocks, reads_version
from exporter.cache.installed_files import list_recorded_files
from exporter.cache.states import (
    ALL_FILES,
    COMMON_MODULES,
    FOLDER,
    LISTING,
    MISSING,
    find_checkout,
    hash_source,
    list_package_folders,
    read_source_state,
)
from exporter.core.import_object import SHADOWS
from exporter.records.record import Source
from exporter.virtual_environments import read_shared_packages
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.opened_files import FileAccesses

#: Folders of the operating system. A change of the system is not detected.
_SYSTEM = (
    *("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys"),
    "/usr",
)
#: Folders of packages that the system installs, without a list of their files.
_OF_SYSTEM = ("/usr/lib/",)
#: Modules that an environment adds to its folder of packages, and that each process loads.
_OF_ENVIRONMENT = ("_virtualenv.py", "sitecustomize.py", "usercustomize.py")
_PYCACHE = "__pycache__"
#: Folders in these for files of users and data that an administrator adds.
_USER = ("/dev/shm", "/run/media", "/run/user", "/usr/local/share")  # noqa: S108 - only read
#: Python's own function: a job replaces `os.readlink` by one that records the calls of its model.
_READ_LINK = os.readlink
#: The number of links in a path after which Linux reports an error.
_LINK_LIMIT = 40


class Group(Enum):
    """The groups of files."""

    PROJECT = "project"
    EXTERNAL = "external"
    """A file of the user outside of the project."""
    FOREIGN = "foreign"
    """A file of Python, an installed package, this tool or the system. A file in a folder of
    packages that no installer listed is of the user."""


#: The folder of git, which writes there when a model asks for the version of its checkout.
_GIT = "/.git/"


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path without links."""

    path: str
    links: tuple[str, ...]
    """The links on the way, as absolute paths."""


@cache
def resolve_path(name: str) -> ResolvedPath:
    """Return the real path of an absolute path and all links that lead to it."""
    pending = name.split("/")[::-1]
    path = ""
    links: list[str] = []
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            path = path.rpartition("/")[0]
            continue
        path = f"{path}/{part}"
        target = _read_link(path)
        # Linux fails after so many links; then no file exists.
        if target and len(links) < _LINK_LIMIT:
            links.append(path)
            pending.extend(target.split("/")[::-1])
            path = "" if target.startswith("/") else path.rpartition("/")[0]
    return ResolvedPath(path or "/", tuple(dict.fromkeys(links)))


def resolve_root(root: Path) -> str:
    """Return the real path of the project's root; without a look at the disk, except once."""
    return resolve_path(str(root.absolute())).path


@cache
def _read_link(path_text: str) -> str:
    """Return the text of a link, or "" if the path is none; thousands of files share folders."""
    try:
        return _READ_LINK(path_text)
    except OSError:
        return ""


def classify_path(path_text: str, root_text: str) -> Group:
    """Return the group of a real path: that of the innermost listed folder.

    Both paths have no links. An environment may be in the folder of the project.
    """
    folder, group = _find_group(path_text)
    is_inside = path_text == root_text or path_text.startswith(f"{root_text.rstrip('/')}/")
    # pip clones editable installations into `src` of an environment: sources of the project.
    if is_inside and (len(folder) <= len(root_text) or folder == _find_clones()):
        return Group.PROJECT
    return group


@cache
def _find_group(path_text: str) -> tuple[str, Group]:
    """Return the innermost listed folder without those of a project, and its group."""
    groups = _list_groups()
    folder = path_text
    while folder and folder not in groups:
        folder = folder.rpartition("/")[0]
    if folder in _list_real_package_folders() and _is_unlisted(path_text, folder):
        return folder, Group.EXTERNAL
    return folder, groups.get(folder, Group.EXTERNAL)


def _is_unlisted(path_text: str, folder: str) -> bool:
    """Return True for a file in a folder of packages that belongs to no installed package.

    Nothing but its content shows that it changed.
    """
    name = path_text.removeprefix(f"{folder}/")
    parts = name.split("/")
    return (
        not folder.startswith(_OF_SYSTEM)
        and parts[0] not in (*_TOOLS, *_OF_ENVIRONMENT)
        and _PYCACHE not in parts
        and not parts[0].endswith((".dist-info", ".egg-info", ".pth"))
        and name not in list_recorded_files(folder)
        and Path(path_text).is_file()
    )


@cache
def _list_real_package_folders() -> frozenset[str]:
    return frozenset(map(os.path.realpath, list_package_folders()))


@cache
def _find_clones() -> str:
    return str(Path(sys.prefix, "src").resolve())


@cache
def _list_groups() -> dict[str, Group]:
    """Return the groups of the folders of the system, the user, Python and this tool."""
    paths = {sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib", "platstdlib")}
    paths |= {sys.prefix, sys.base_prefix, *list_package_folders()}
    if read_shared_packages(Path(sys.prefix)):
        # The folder of created environments may be in the project.
        paths.add(str(Path(sys.prefix).parent))
    paths.add(str(Path.home() / "intel"))  # the telemetry of OpenVINO writes there
    paths.add(str(Path(__file__).parents[2]))
    return {
        **dict.fromkeys(_SYSTEM, Group.FOREIGN),
        **dict.fromkeys(_USER, Group.EXTERNAL),
        **dict.fromkeys((str(Path(path).resolve()) for path in paths), Group.FOREIGN),
        _find_clones(): Group.EXTERNAL,
    }


#: Packages that run or export a model, and those that they use: no line of them is of a model.
_TOOLS = frozenset(
    [
        "exporter",
        "functorch",
        "google",
        "jinja2",
        "ml_dtypes",
        "mpmath",
        "networkx",
        "numpy",
        "onnx",
        "onnx_ir",
        "onnxruntime",
        "onnxscript",
        "openvino",
        "packaging",
        "pydantic",
        "pydantic_core",
        "sympy",
        "torch",
        "torchgen",
        "typing_extensions.py",
    ]
)


@cache
def find_model_file(file: str | Path, root: Path) -> str:
    """Return the name of a file that may contain lines of a model.

    A relative path is not a file: torch assigns such names to generated modules.

    Returns:
        The path relative to the root for a file of the project, `transformers/models/bert.py` for a
        file of an installed package, and "" for torch, other tools and Python itself.
    """
    if not Path(file).is_absolute():
        return ""
    real, folder = resolve_path(str(file)).path, resolve_root(root)
    if classify_path(real, folder) is Group.PROJECT:
        return os.path.relpath(real, folder)
    for path in (str(file), real):
        for prefix in _list_package_prefixes():
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                return "" if name.partition("/")[0] in _TOOLS else name
    return ""


def find_package_module(file: str) -> str:
    """Return the outermost module of a file in a folder of packages, or ""."""
    prefix = next((each for each in _list_package_prefixes() if file.startswith(each)), "")
    name = file.removeprefix(prefix).partition("/")[0] if prefix else ""
    return name.partition(".")[0]


def find_frame_line(frames: Iterable[tuple[FrameType, int]], root: Path) -> str:
    """Return the line of the first frame that is in a model, or "" if there is none."""
    files = ((find_model_file(frame.f_code.co_filename, root), line) for frame, line in frames)
    return next((f"{path}:{line}" for path, line in files if path), "")


@cache
def _list_package_prefixes() -> tuple[str, ...]:
    """Return the folders of installed packages, as they are named and resolved."""
    folders = list_package_folders()
    return tuple(dict.fromkeys(f"{each}/" for each in (*folders, *map(os.path.realpath, folders))))


#: Nanoseconds by which the two clocks may drift apart in a job if a service corrects one.
_DRIFT = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """The start time of a job by two clocks."""

    changed: int
    """The kernel's time in nanoseconds: `st_ctime_ns` of a file that was written then."""
    offset: int
    """The wall clock minus the monotonic clock in nanoseconds."""

    @classmethod
    def measure(cls, file: Path) -> JobStart:
        """Return the start of a job that begins now, right after `file` was written."""
        return cls(changed=file.stat().st_ctime_ns, offset=_measure_offset())

    def has_changed(self, path_text: str) -> bool:
        """Return True if the file changed after the start.

        If the wall clock was set back during the job, a changed file may have a time before the
        start. The start time is set back by the same amount then.
        """
        set_back = max(0, self.offset - _measure_offset() - _DRIFT)
        try:
            return Path(path_text).stat().st_ctime_ns > self.changed - set_back
        except OSError:
            return False  # the hash of a missing file is empty


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The files that a record depends on, as it stores them."""

    sources: tuple[Source, ...]
    """Files of the project."""
    external: dict[str, str]
    """States of other files of the user, by their path from the project's root."""


def digest_dependencies(
    root: Path,
    since: JobStart,
    accesses: FileAccesses,
    *,
    ignored: Iterable[Path],
    declared: Iterable[Path] = (),
    text: str | None = None,
) -> Dependencies:
    """Return the states of all files and folders that a job used.

    If a file changed after the start of the job, its state is empty, because the loaded content may
    be another. The ignored folders are those of the job and of its devices' environments.

    `text`: The record. Numbers of lines count in the files that it names; None means all.
    """
    real_root = resolve_root(root)
    folders = [str(folder.resolve()) for folder in ignored]
    read = (*map(_find_source_file, accesses.texts), *map(str, declared))
    texts = {resolve_path(path).path for path in read}
    blocks = {path: ran for path, ran in _list_blocks(text).items() if path not in texts}
    used = (*list_module_files(), *map(_find_source_file, accesses.read))
    files = {path for path in used if not _is_foreign(path, real_root)}
    has_version = any(VERSION in ran for ran in blocks.values())
    if has_version and not any(map(reads_version, files)):
        for ran in blocks.values():
            ran.pop(VERSION, None)
    collector = _Collector(real_root, folders, since, accesses.written, blocks)
    for path in files:
        collector.add_file(path)
    # A new module can replace another one in an import that searched for its name.
    names: dict[str, set[str]] = {}
    for path in accesses.imports:
        folder, _, name = path.rpartition("/")
        names.setdefault(folder, set()).add(name)
    for folder, searched in names.items():
        # `SHADOWS` includes common names, which a fork server may have loaded before.
        listed = searched - COMMON_MODULES if SHADOWS in searched else searched
        is_list = not any("," in name for name in listed)
        pattern = f"{LISTING}?{','.join(sorted(listed))}" if is_list else LISTING
        collector.add_folder(folder, pattern)
    for file in declared:
        collector.add_file(str(file))
    for path in accesses.tested:
        collector.add_test(path)
    for path in accesses.read_back.intersection(accesses.tested):
        collector.add_created(path)
    for folder in accesses.searched:
        collector.add_folder(folder, LISTING)
    for folder in accesses.listed:
        collector.add_folder(folder, ALL_FILES, is_own=folder in accesses.listed_by_project)
    return collector.make_dependencies()


def _list_blocks(text: str | None) -> dict[str, dict[str, str]]:
    """Return the blocks that ran by real path, with the hash of a file that the text names."""
    blocks = {resolve_path(path).path: ran for path, ran in EXECUTED.list_blocks().items()}
    for path, ran in blocks.items():
        if text is None or Path(path).name in text:
            ran[TEXT] = hash_source(Path(path))
    return blocks


def expand_globs(folder: Path, patterns: Iterable[str]) -> tuple[list[Path], list[str]]:
    """Return the files that globs match, and all folders in which a new file could match."""
    files: list[Path] = []
    folders: list[str] = []
    for pattern in patterns:
        files += sorted(path for path in folder.glob(pattern) if path.is_file())
        base = folder
        for part in Path(pattern).parts[:-1]:
            if set(part) & set("*?["):
                folders += [str(path) for path in base.rglob("*") if path.is_dir()]
                break
            base = base / part
        folders.append(str(base))
    return files, folders


def is_model_code(file: str, root: Path) -> bool:
    """Return True for a file that may contain lines of a model, also one outside of the project."""
    if not file.startswith("/"):
        return not file.startswith("<frozen")
    return not _is_foreign(file, resolve_root(root)) or bool(find_model_file(file, root))


@cache
def _is_foreign(file: str, root_text: str) -> bool:
    """Return True for a file of a package, of this tool or of the system, and its links."""
    resolved = resolve_path(file)
    paths = (resolved.path, *resolved.links)
    return all(classify_path(path, root_text) is Group.FOREIGN for path in paths)


def list_module_files() -> list[str]:
    """Return the files of the loaded modules; torch gives generated modules relative names."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in files if isinstance(file, str) and file.startswith("/")]


def _find_source_file(path_text: str) -> str:
    """Return the source of a bytecode file, or the path itself."""
    if path_text.endswith(".pyc") and "__pycache__" in path_text:
        with suppress(ValueError):
            return importlib.util.source_from_cache(path_text)
    return path_text


class _Collector:
    """The states of paths by their names in a record."""

    def __init__(
        self,
        root_text: str,
        ignored: list[str],
        since: JobStart,
        written: frozenset[str],
        blocks: Mapping[str, dict[str, str]],
    ) -> None:
        self._root = root_text
        self._checkout = f"{find_checkout(root_text)}/"
        self._ignored = tuple(f"{folder}/" for folder in ignored)
        self._since = since
        self._blocks = blocks
        self._written = frozenset(resolve_path(path).path for path in written)
        self._sources: dict[str, str] = {}
        self._external: dict[str, str] = {}

    def add_file(self, path_text: str) -> None:
        """Add a file that was read, with the links that lead to it."""
        resolved = self._resolve(path_text)
        if resolved is None:
            return
        real, group = resolved
        state = read_source_state(Path(real))
        if group is Group.EXTERNAL:
            # A missing file outside may be a setting that a package looks for.
            if state not in (MISSING, FOLDER) and real not in self._written:
                self._add_external(real, self._protect(real, state))
        elif state != MISSING or real not in self._written:
            if real in self._blocks and state not in (MISSING, FOLDER, ""):
                state = format_blocks(self._blocks[real])
            self._sources[self._name(real)] = self._protect(real, state)

    def add_test(self, path_text: str) -> None:
        """Add a path of the project whose existence was requested.

        The folders above the job's exist in every job, and some of them only then.
        """
        if self._root in path_text:
            resolved = self._resolve(path_text)
            is_above = resolved is not None and any(
                folder.startswith(f"{resolved[0]}/") for folder in self._ignored
            )
            if resolved is not None and resolved[1] is Group.PROJECT and not is_above:
                self.add_file(path_text)

    def add_created(self, path_text: str) -> None:
        """Add a file outside of the project that the job created for itself, as it is now.

        The job looked for it before it wrote it, so the next job may only read it.
        """
        resolved = self._resolve(path_text)
        if resolved is not None and resolved[1] is Group.EXTERNAL:
            state = read_source_state(Path(resolved[0]))
            if state not in (MISSING, FOLDER):
                self._add_external(resolved[0], state)

    def add_folder(self, path_text: str, pattern: str, *, is_own: bool = False) -> None:
        """Add the list of names in a folder; a folder in an archive is represented by the file.

        A listing outside of the project counts if code of the project requested it (`is_own`).
        """
        resolved = self._resolve(path_text)
        if resolved is None:
            return
        if Path(resolved[0]).is_file():
            self.add_file(resolved[0])
            return
        name = f"{resolved[0]}/{pattern}"
        state = hash_source(Path(name))
        if resolved[1] is Group.PROJECT:
            self._sources[self._name(name)] = state
            return
        is_kept = pattern != ALL_FILES and not _is_shared(resolved[0])
        if is_kept or (is_own and state):  # a temporary folder is gone
            self._add_external(name, state)

    def make_dependencies(self) -> Dependencies:
        """Return all states, sorted by name."""
        sources = (Source(file=name, state=state) for name, state in sorted(self._sources.items()))
        return Dependencies(tuple(sources), dict(sorted(self._external.items())))

    def _resolve(self, path_text: str) -> tuple[str, Group] | None:
        """Return the real path and its group, after its links were added.

        A path inside an archive, `library.zip/package/net.py`, becomes that of the archive.
        Files of the job, of packages, of this tool and of the system give None.
        """
        resolved = resolve_path(path_text)
        for link in resolved.links:
            group = self._classify(link)
            if group is Group.PROJECT:
                self._sources[self._name(link)] = read_source_state(Path(link))
            elif group is Group.EXTERNAL:
                self._add_external(link, read_source_state(Path(link)))
        group = self._classify(resolved.path)
        return None if group is None else (_find_archive(resolved.path), group)

    def _classify(self, path_text: str) -> Group | None:
        group = classify_path(path_text, self._root)
        folder = f"{path_text}/"
        # A project may itself be below a folder of git, such as a checkout in a cache.
        is_of_git = _GIT in folder.removeprefix(self._root)
        if group is Group.FOREIGN or is_of_git or folder.startswith(self._ignored):
            return None
        return group

    def _protect(self, path_text: str, state: str) -> str:
        """Return "" if the file changed during the job and the job did not write it."""
        is_content = state not in (MISSING, FOLDER)
        has_changed = (
            is_content and path_text not in self._written and self._since.has_changed(path_text)
        )
        return "" if has_changed else state

    def _add_external(self, path_text: str, state: str) -> None:
        # Checkouts at other places have their own copy of a file of the repository.
        name = (
            self._name(path_text) if path_text.startswith(self._checkout) else _to_text(path_text)
        )
        self._external[name] = f"file {state}" if state else ""

    def _name(self, path_text: str) -> str:
        return _to_text(os.path.relpath(path_text, self._root))


def _is_shared(folder_text: str) -> bool:
    """Return True for a folder such as `/tmp`, in which any program creates modules."""
    try:
        return bool(Path(folder_text).stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def _find_archive(path_text: str) -> str:
    """Return the file that contains a path, such as a zip archive, or else the path itself."""
    if not Path(path_text).exists():
        archive = next((each for each in Path(path_text).parents if each.exists()), None)
        if archive is not None and archive.is_file():
            return str(archive)
    return path_text


def _to_text(path_text: str) -> str:
    """Return a path as text for a record; one that is not UTF-8 is never found again."""
    return os.fsencode(path_text).decode(errors="backslashreplace")


def _measure_offset() -> int:
    # If the process waits between the two reads, the difference is too small.
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
