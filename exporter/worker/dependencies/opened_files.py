"""Files and folders that the code of a model reads, tests or lists.

On Linux, the tracer sees each file that the process or a child opens (`access_tracer`). An audit
hook of Python sees the rest: listings of folders, connections to other machines. It replaces the
tracer on other systems and in containers that forbid it. There, reads by native code are seen only
for the listed readers, and a child process makes the dependencies incomplete.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from multiprocessing import util as process_util
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import unquote, urlsplit

from exporter.core.files import QUIET_FLAG
from exporter.core.import_object import SEARCHED, RecordingFinder
from exporter.core.system import find_open_path
from exporter.processes.child_call import CALL_MODULE
from exporter.processes.worker_variables import (
    CACHES,
    OFFLINE,
    PRIVATE,
    TERMINAL,
    WITHHELD,
    hash_variable,
    is_fixed,
)
from exporter.runtimes.drivers import DRIVER_FOLDER
from exporter.worker.dependencies.access_tracer import AccessTracer
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.file_access import Access, Lister

#: The folders of the standard library and of this package.
_STANDARD_LIBRARY = str(Path(os.__file__).parent) + os.sep
#: Functions of Python that list folders to find modules and packages.
IMPORT_SYSTEM = (
    "<frozen importlib.",
    f"{_STANDARD_LIBRARY}importlib{os.sep}",
    f"{_STANDARD_LIBRARY}pkgutil.py",
)
#: `importlib.metadata` lists folders for imports, and for this tool, which reads versions.
_METADATA = f"{_STANDARD_LIBRARY}importlib{os.sep}metadata{os.sep}"
_OWN_PACKAGE = str(Path(__file__).parents[2]) + os.sep
#: torch calls it. It tests the files of all loaded modules, which are dependencies anyway.
_GET_MODULE = inspect.getmodule.__code__
#: This package's own hooks, which are between the caller and `find_caller`.
_HOOKS = str(Path(__file__).parent) + os.sep
_PACKAGES = f"{os.sep}site-packages{os.sep}"


class Caller(Enum):
    """The owner of the innermost function outside of the standard library."""

    PROJECT = "project"
    PACKAGE = "package"
    IMPORT = "import"
    TOOL = "tool"


def find_caller() -> Caller:
    """Return the owner of the code that called a hook."""
    frame = inspect.currentframe()
    is_metadata = False
    while frame := frame.f_back if frame else None:
        file = frame.f_code.co_filename
        if file.startswith(_METADATA):
            is_metadata = True
            continue
        if frame.f_code is _GET_MODULE:
            return Caller.TOOL
        if file.startswith(IMPORT_SYSTEM):
            return Caller.IMPORT
        if not file.startswith(("<frozen", _HOOKS)) and (owner := _find_owner(file)) is not None:
            return Caller.IMPORT if is_metadata and owner is not Caller.TOOL else owner
    return Caller.PROJECT


def _find_owner(file: str) -> Caller | None:
    """Return the owner of a file, or None for the standard library."""
    if file.startswith(_OWN_PACKAGE):
        return Caller.TOOL
    if _PACKAGES in file:
        return Caller.PACKAGE
    return None if file.startswith(_STANDARD_LIBRARY) else Caller.PROJECT


#: The beginnings of a word in the commands of this tool.
_OWN_PROGRAMS = (str(DRIVER_FOLDER), CALL_MODULE)
#: Events that start a process. Without the tracer, its reads are unknown.
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"})
#: The begin of the name of files that only the tracer sees.
_PROCESS_FILES = "the files of the "
_FORK_EVENTS = frozenset({"os.fork", "os.forkpty"})
#: Functions of `os` that test a path or read its link.
_TESTS = ("stat", "lstat", "access", "readlink")
#: Events after which code runs that is not observed: in a copy of its object, or in a fork.
_CODE_EVENTS = frozenset({"code.__new__"}) | _FORK_EVENTS
_NETWORK_EVENT = "socket.connect"
#: Addresses of this machine.
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
#: Modules and functions that open the file in their first argument without Python.
_NATIVE_READERS = (
    ("safetensors", "safe_open"),
    # These two modules have a reference of their own, which their `load_file` uses.
    ("safetensors.torch", "safe_open"),
    ("safetensors.numpy", "safe_open"),
    ("torch", "from_file"),
    ("torch", "UntypedStorage.from_file"),
    ("torch.export", "load"),
    ("torch.jit", "load"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccesses:
    """The absolute paths that a job used, in the order of their first use."""

    read: tuple[str, ...] = ()
    """Files that were opened for reading before the job wrote them, if it did."""
    texts: tuple[str, ...] = ()
    """The files of `read` that something other than an import opened."""
    written: frozenset[str] = frozenset()
    """Files that the job wrote before it read them."""
    read_back: frozenset[str] = frozenset()
    """The files of `written` that the job read afterwards."""
    tested: tuple[str, ...] = ()
    """Paths whose existence or state was requested."""
    listed: tuple[str, ...] = ()
    """Folders whose content was listed."""
    listed_by_project: frozenset[str] = frozenset()
    """The folders of `listed` that code of the project listed."""
    searched: tuple[str, ...] = ()
    """Folders whose modules were listed."""
    imports: tuple[str, ...] = ()
    """Paths without a suffix for which imports searched."""
    untracked: tuple[str, ...] = ()
    """Dependencies that cannot be tracked, in words."""


class OpenedFiles:
    """The files that are used during `watch`.

    It traces until the end of the process, because that cannot be undone.
    """

    def __init__(self, *, trace: bool = False) -> None:
        self._trace = trace
        self._tracer: AccessTracer | None = None
        self._accesses: dict[Access, None] = {}
        self._tested: dict[str, None] = {}
        self._listings: dict[Caller, dict[str, None]] = {caller: {} for caller in Caller}
        self._untracked: dict[str, None] = {}
        self._others: list[FileAccesses] = []

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record the files that are used inside."""
        _HOOK.install()
        if self._trace:
            self._tracer = AccessTracer.start(_OWN_PROGRAMS)
        _HOOK.watchers.append(self)
        try:
            yield
        finally:
            _HOOK.watchers.remove(self)

    @contextlib.contextmanager
    def separate(self) -> Iterator[None]:
        """Keep the files of a fork apart: those inside do not belong to this process."""
        with self._tracer.separate() if self._tracer is not None else contextlib.nullcontext():
            yield

    @contextlib.contextmanager
    def trace_example(self, path_text: str) -> Iterator[list[bool]]:
        """Yield a list that receives whether the tracer, if there is one, sees the path inside."""
        seen: list[bool] = []
        if self._tracer is None:
            yield seen
            return
        with self._tracer.separate():
            yield seen
            seen.append(self._tracer.forget(path_text))

    def add_unrecorded(self, subject: str) -> None:
        """Record that a recorder is silent: the dependencies of this job are unknown."""
        self._untracked[f"the {subject}"] = None

    def has_opened(self, path_text: str) -> bool:
        return any(access.path == path_text for access in self._accesses)

    def has_listed(self, path_text: str) -> bool:
        return path_text in self._listings[Caller.PROJECT]

    def has_tested(self, path_text: str) -> bool:
        return path_text in self._tested

    def add_open(self, path_text: str, flags: int) -> None:
        """Record a file that Python opens; the tracer sees it, too."""
        if self._tracer is None:
            self._accesses[Access(path_text, flags)] = None

    def add_test(self, path_text: str) -> None:
        """Record a path whose state Python requests."""
        self._tested[path_text] = None

    def add_listing(self, path_text: str, *, caller: Caller) -> None:
        """Record a folder that Python lists."""
        self._listings[caller][path_text] = None

    def add_process(self, name: str, kind: str = "child process") -> None:
        """Record a process or a library whose files only the tracer sees."""
        if self._tracer is None:
            self._untracked[f"{_PROCESS_FILES}{kind} `{name}`"] = None

    def add_unknown(self) -> None:
        """Record a folder whose path this system does not show."""
        self._untracked["a folder whose path cannot be read"] = None

    def add_connection(self, host: str) -> None:
        """Record a connection to another machine."""
        self._untracked[f"data from the network ({host})"] = None

    def add_accesses(self, accesses: FileAccesses) -> None:
        """Record the files that a child process reported.

        The tracer has seen those of its own children, too.
        """
        if self._tracer is not None:
            others = (each for each in accesses.untracked if not each.startswith(_PROCESS_FILES))
            accesses = replace(accesses, untracked=tuple(others))
        self._others.append(accesses)

    def list_accesses(self) -> FileAccesses:
        """Return everything that was used until now, also by children that reported it."""
        accesses = self._list_process_accesses()
        for other in (replace(each, texts=each.read) for each in self._others):
            keys = ("read", "texts", "tested", "listed", "searched", "imports", "untracked")
            merged: dict[str, Any] = {
                key: tuple(dict.fromkeys((*getattr(accesses, key), *getattr(other, key))))
                for key in keys
            }
            sets = ("written", "read_back", "listed_by_project")
            merged |= {key: getattr(accesses, key) | getattr(other, key) for key in sets}
            accesses = FileAccesses(**merged)
        return accesses

    def _list_process_accesses(self) -> FileAccesses:
        accesses = tuple(self._accesses)
        if self._tracer is not None:
            accesses = self._tracer.list_accesses()
        listed = self._listings[Caller.PROJECT] | self._listings[Caller.PACKAGE]
        untracked = dict(self._untracked)
        other_listings = self._listings[Caller.IMPORT].keys() | self._listings[Caller.TOOL].keys()
        searched = dict(self._listings[Caller.IMPORT])
        read: dict[str, None] = {}
        texts: dict[str, None] = {}
        written: set[str] = set()
        read_back: set[str] = set()
        for access in accesses:
            path = access.path
            if access.is_name_for_sandbox:
                continue
            if not path:
                untracked["a file whose path cannot be read"] = None
            elif access.lister is Lister.IMPORT:
                searched[path] = None
            elif access.is_folder:
                if access.lister is Lister.PROGRAM or path not in other_listings:
                    listed[path] = None
            elif access.is_write and path not in read:
                written.add(path)
            elif not access.is_write and path in written:
                read_back.add(path)
            elif not access.is_write:
                read[path] = None
                if not access.flags & QUIET_FLAG:
                    texts[path] = None
        return FileAccesses(
            read=tuple(read),
            texts=tuple(texts),
            written=frozenset(written),
            read_back=frozenset(read_back),
            tested=tuple(path for path in self._tested if path not in read),
            listed=tuple(listed),
            listed_by_project=frozenset(self._listings[Caller.PROJECT]),
            searched=tuple(searched),
            imports=tuple(SEARCHED),
            untracked=tuple(untracked),
        )


class _AuditHook:
    """The audit hook of this process, which Python cannot remove."""

    def __init__(self) -> None:
        self.watchers: list[OpenedFiles] = []
        self._is_installed = False

    def install(self) -> None:
        """Install the hook, replace the native readers and `os.stat`, once.

        This has to precede the import of the model's code, which may bind a function by name.
        """
        if self._is_installed:
            return
        self._is_installed = True
        sys.addaudithook(self._handle)
        for name, reader in _NATIVE_READERS:
            if "torch" in name and "torch" not in sys.modules:
                continue  # a pass after the export; the import takes seconds
            with contextlib.suppress(ImportError):
                owner: Any = importlib.import_module(name)
                *classes, function = reader.split(".")
                for each in classes:
                    owner = getattr(owner, each)
                recording = _raise_open_event(getattr(owner, function))
                setattr(owner, function, staticmethod(recording) if classes else recording)
        os.open = self._record_open(os.open)
        os.supports_dir_fd.add(os.open)
        # `multiprocessing` starts processes without an event.
        process_util.spawnv_passfds = _raise_process_event(process_util.spawnv_passfds)
        # No events exist for them. The import system has references of its own.
        for name in _TESTS:
            test = getattr(os, name)
            recording = self._record_test(test)
            setattr(os, name, recording)
            # The library looks into these sets to find functions that accept an argument.
            for functions in (
                *(os.supports_dir_fd, os.supports_fd),
                *(os.supports_effective_ids, os.supports_follow_symlinks),
            ):
                if test in functions:
                    functions.add(recording)

    def _handle(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watchers:
            return
        if event in _CODE_EVENTS and find_caller() is not Caller.TOOL:
            self._mark_unobserved(event)
        elif event == "open":
            name, mode, flags = arguments
            if isinstance(mode, str):  # the flags of `io.open` do not contain the mode
                flags = _read_mode(mode)
            self._add(OpenedFiles.add_open, name, int(flags or 0))
        elif event in ("ctypes.dlopen", "sqlite3.connect"):
            self._add_native(event, arguments[0])
        elif event in ("os.listdir", "os.scandir"):
            frame = inspect.currentframe()
            self._add_listing(arguments[0], frame.f_back if frame else None)
        elif event == "os.link" and find_caller() in (Caller.PROJECT, Caller.PACKAGE):
            self._add(OpenedFiles.add_test, arguments[0])  # the other name may be removed later
        elif event in _PROCESS_EVENTS:
            self._add_process(event, arguments)
        elif event == _NETWORK_EVENT and isinstance(arguments[1], tuple):
            self._add_connection(str(arguments[1][0]))

    def _add_listing(self, folder: object, lister: FrameType | None) -> None:
        """Record a folder that a function lists; `lister` is its frame."""
        # This tool's finder records the names for which it searches.
        is_finder = lister and isinstance(lister.f_locals.get("self"), RecordingFinder)
        caller = Caller.TOOL if is_finder else find_caller()
        add = functools.partial(OpenedFiles.add_listing, caller=caller)
        self._add(add, _find_folder(folder))

    def _add_process(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record a program that starts, unless its files are known.

        A runtime process reads the exported file and its own environment. A child of this tool
        reports its files.
        """
        if event == "subprocess.Popen" and any(
            str(each).startswith(_OWN_PROGRAMS) for each in arguments[1]
        ):
            return
        for files in self.watchers:
            files.add_process(os.fsdecode(arguments[0]))

    def _add_connection(self, host: str) -> None:
        """Record a connection to another machine."""
        if host not in _LOCAL_HOSTS:
            for files in self.watchers:
                files.add_connection(host)

    def _add_native(self, event: str, name: object) -> None:
        """Record a library or a database that native code opens."""
        if isinstance(name, str) and event == "sqlite3.connect" and name.startswith("file:"):
            name = unquote(urlsplit(name).path)
        self._add(OpenedFiles.add_open, name, os.O_RDONLY)
        if event == "ctypes.dlopen" and find_caller() is Caller.PROJECT:
            for files in self.watchers:
                files.add_process(str(name or "libc"), "library")

    def _mark_unobserved(self, event: str) -> None:
        """Record that code runs whose blocks, and perhaps whose files, are unknown."""
        EXECUTED.add_all()
        if event in _FORK_EVENTS:
            for files in self.watchers:
                files.add_process("a fork")

    def _add(self, add: Callable[..., None], name: object, *arguments: int) -> None:
        if isinstance(name, bytes | os.PathLike):
            name = os.fsdecode(name)
        if name == "":  # a listed folder
            for files in self.watchers:
                files.add_unknown()
        elif isinstance(name, str):
            # An exception in the hook would abort the call.
            with contextlib.suppress(OSError):
                # Resolve it now, because a model may change the working directory.
                path = name if name.startswith("/") else f"{Path.cwd()}/{name}"
                for files in self.watchers:
                    add(files, path, *arguments)

    def _record_open(self, opener: Callable[..., int]) -> Callable[..., int]:
        """Record a file that is opened below the descriptor of a folder; the event lacks it."""

        @functools.wraps(opener)
        def record(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if dir_fd is not None and self.watchers and not os.fsdecode(path).startswith("/"):
                folder = find_open_path(dir_fd)
                name = f"{folder}/{os.fsdecode(path)}" if folder else ""
                self._add(OpenedFiles.add_open, name, flags)
            return opener(path, flags, mode, dir_fd=dir_fd)

        return record

    def _record_test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def record(path: Any, *args: Any, **kwargs: Any) -> Any:
            is_path = self.watchers and not isinstance(path, int)
            if is_path and find_caller() in (Caller.PROJECT, Caller.PACKAGE):
                self._add(OpenedFiles.add_test, path)
            return test(path, *args, **kwargs)

        return record


_HOOK = _AuditHook()


@contextlib.contextmanager
def watch_alone() -> Iterator[OpenedFiles]:
    """Record what happens inside, which no other watcher records."""
    watchers, alone = _HOOK.watchers, OpenedFiles()
    _HOOK.watchers = [alone]
    try:
        yield alone
    finally:
        _HOOK.watchers = watchers


def _read_mode(mode: str) -> int:
    """Return the flags of the system for a mode of Python's `open`."""
    if "+" in mode:
        access = os.O_RDWR
    elif "r" in mode:
        access = os.O_RDONLY
    else:
        access = os.O_WRONLY
    return access | os.O_TRUNC if set(mode) & set("wx") else access


def _find_folder(argument: object) -> object:
    """Return the path of a listing; it may be that of a file descriptor, as in `os.fwalk`."""
    if isinstance(argument, int):
        return find_open_path(argument)
    return "." if argument is None else argument


def _raise_process_event(start: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(start)
    def record(path: Any, args: Any, passfds: Any) -> int:
        sys.audit("subprocess.Popen", path, args, None, None)
        return start(path, args, passfds)

    return record


def _raise_open_event(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            sys.audit("open", os.fspath(file), "r", os.O_RDONLY)
        return reader(file, *args, **kwargs)

    return read


_Environment: Any = type(os.environ)


class TrackedEnvironment(_Environment):  # type: ignore[misc]  # Python has no public name for it
    """The environment of this process, which records each name that is read."""

    def __getitem__(self, name: str) -> Any:
        _READS.add(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names and record them."""
        for name in super().__iter__():
            _READS.add(name)
            yield name


class VariableReads:
    """The names of variables that were read since `watch`."""

    def __init__(self) -> None:
        # Workers import this module before torch, which sets variables.
        self._first = dict(os.environ)
        self._by_project: dict[str, None] = {}
        self._absent: dict[str, bool] = {}
        self._withheld = frozenset(os.environ.get(WITHHELD, "").split(",")) - {""}
        self._is_watching = False

    def watch(self) -> None:
        """Record names from now on."""
        os.environ.__class__ = os.environb.__class__ = TrackedEnvironment
        self._is_watching = True

    def add(self, name: object) -> None:
        """Record a name that is read.

        A locale that the project lists is a part of the fingerprint.
        """
        name = os.fsdecode(name) if isinstance(name, bytes) else name
        if not self._is_watching or not isinstance(name, str) or is_fixed(name):
            return
        if name in PRIVATE | TERMINAL:  # the project's code never gets the value of the user
            return
        is_by_project = find_caller() is Caller.PROJECT
        if name in self._withheld:
            self._absent[name] = is_by_project or self._absent.get(name, False)
        elif is_by_project:
            self._by_project[name] = None

    def forget(self, name: str) -> bool:
        """Forget a variable that the project's code read; return whether it was recorded."""
        return self._by_project.pop(name, "unknown") is None

    def read_states(self, files: Iterable[str], root: Path) -> dict[str, str]:
        """Return the states of the variables that the project's code read, by sorted name.

        A state is that before the code of the model could set the variable. If the job read a file
        in a cache, another cache may have another one. The copy of a project on the host of a
        cluster may be in a cache itself. The paths have no links.
        """
        names = set(self._by_project) - {WITHHELD}
        folders = [str(Path.home() / ".cache"), *filter(None, map(self._first.get, CACHES))]
        paths = [f"{os.path.realpath(folder)}/" for folder in folders]
        caches = tuple(folder for folder in paths if not str(root).startswith(folder))
        if any(file.startswith(caches) for file in files):
            names |= CACHES | OFFLINE
        return {name: hash_variable(name, self._first.get(name)) for name in sorted(names)}

    def list_withheld(self, *, is_failure: bool) -> tuple[str, ...]:
        """Return the names that were read although workers do not receive them.

        Packages read many names, `CI` among them, that explain at most a failure.
        """
        return tuple(sorted(name for name in self._absent if is_failure or self._absent[name]))


_READS = VariableReads()


def watch_variables() -> VariableReads:
    """Record the reads of environment variables from now on, once for this process."""
    _READS.watch()
    return _READS
