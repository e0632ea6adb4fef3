"""Fork processes that have imported the program: its imports take most of the time of a command.

`python -m tests.integration.program_server commands OWNER` runs the commands of `run_exporter`.
`... workers OWNER` becomes the fork servers of their exports and runs the functions that a command
calls in a child process. Both serve all processes of a run of tests and end with the process OWNER.
`... run ARGUMENTS` is a command for programs that a test starts. Tests of processes use none.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
#: The variables of the servers, before a test changes some.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
#: Variables that Python or a library reads when it starts.
_START_VARIABLES = ("PYTHON", "LD_", "LC_", "LANG", "TORCH", "ORT_", "OMP_", "CUDA_", "EXPORTER_T")
#: A variable that torch sets in each process that exports, such as that of the tests.
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"
#: Commands that start processes with the modules of workers.
WORKING = {"add", "doctor", "evidence", "export", "ops", "publish", "record", "rehearse"}
WORKING |= {"repro", "verify"}
#: The variable that describes the servers.
_SERVERS = "TEST_SERVERS"
#: The output of a server that can be reached; requests wait until it has imported its modules.
_READY = b"ready\n"
#: Bytes of a message and descriptors with it.
_MAX_MESSAGE, _MAX_DESCRIPTORS = 1 << 20, 8


def select_start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have no effect on a running process."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_START_VARIABLES) and name != _SET_BY_TORCH
    }


def name_socket(kind: str, owner: int) -> str:
    """Return the name of a socket without a file, which ends with its process."""
    return f"\0exporter-tests-{owner}-{kind}"


class Server:
    """A process of this module, which another process of the same run of tests may have started."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        self.variables = select_start_variables(environment)
        # The processes of pytest-xdist have one parent. `pytest --cpu` counts the time of a server
        # for the test that uses it.
        is_shared = "PYTEST_XDIST_WORKER" in os.environ and "OWN_TEST_SERVERS" not in os.environ
        owner = os.getppid() if is_shared else os.getpid()
        self.path = name_socket(kind, owner)
        self._process = subprocess.Popen(
            # The product starts its fork server with `-P`, too.
            [sys.executable, *["-P"] * (kind == "workers"), "-m", __name__, kind, str(owner)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # The imports of workers write warnings.
            stderr=subprocess.DEVNULL if kind == "workers" else None,
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            if output.read() != _READY:
                raise AssertionError(f"the server of {kind} ended with {self._process.wait()}")


@cache
def start_server(kind: str) -> Server:
    """Start a server of commands or of workers, unless another process has started it."""
    from exporter.processes.worker_variables import make_worker_environment

    is_worker = kind == "workers"
    return Server(kind, make_worker_environment(_ENVIRONMENT) if is_worker else _ENVIRONMENT)


def can_run(environment: Mapping[str, str]) -> bool:
    """Return True if a fork of the server has the same results as a new process."""
    is_linux = sys.platform == "linux"
    return is_linux and select_start_variables(environment) == start_server("commands").variables


def run_command(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `exporter ARGUMENTS` in a folder, in a fork of the server."""
    message = {"arguments": [*arguments], "folder": str(folder), "environment": {**environment}}
    message |= {"role": "command"}
    if WORKING.intersection(arguments):
        message |= describe_workers()
    with (
        Path(os.devnull).open("rb") as null,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        streams = [stream.fileno() for stream in (null, output, errors)]
        code = send(start_server("commands").path, message, streams)
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess([*arguments], code, *texts)


def describe_workers() -> dict[str, Any]:
    """Return the part of a message that lets an export use the server of workers."""
    server = start_server("workers")
    return {"workers": server.path, "variables": server.variables}


def describe_servers() -> dict[str, str]:
    """Return the variable for `python -m tests.integration.program_server run ARGUMENTS`."""
    servers = {"commands": start_server("commands").path, **describe_workers()}
    return {_SERVERS: json.dumps(servers)}


def forward(arguments: Sequence[str]) -> int:
    """Run `exporter ARGUMENTS` by the servers of another process and return its exit code."""
    servers = json.loads(os.environ[_SERVERS])
    environment = {name: value for name, value in os.environ.items() if name != _SERVERS}
    message = {"arguments": [*arguments], "folder": str(Path.cwd()), "environment": environment}
    message |= {"role": "command"}
    return send(servers["commands"], {**servers, **message}, (0, 1, 2))


def send(path: str, message: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Send a message with descriptors to a server and return the number of its response."""
    with open_request(path, message, descriptors) as response:
        return int(response.readline())


def open_request(path: str, message: Mapping[str, Any], descriptors: Sequence[int]) -> TextIO:
    """Send a message with descriptors to a server and return its responses, a number each."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        data = json.dumps(message).encode() + b"\n"
        # A call without bytes fails if the server has already closed its end.
        if rest := data[socket.send_fds(connection, [data], descriptors) :]:
            connection.sendall(rest)
        return connection.makefile()


def collect_children(*_: object) -> None:
    """Wait for the processes that ended, so that none remains as a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(kind: str, owner: int) -> None:
    """Fork a process for each message until the owner ends, unless another process does it."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name_socket(kind, owner))
    except OSError:
        while listener.connect_ex(name_socket(kind, owner)):
            time.sleep(0.01)
        os.write(1, _READY)
        return
    listener.listen(64)
    import_modules(kind)
    signal.signal(signal.SIGCHLD, collect_children)
    end = os.pidfd_open(owner)
    os.write(1, _READY)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    while end not in select.select([listener, end], [], [])[0]:
        connection, _ = listener.accept()
        data, descriptors, *_ = socket.recv_fds(connection, _MAX_MESSAGE, _MAX_DESCRIPTORS)
        if not data:  # another server found that this one listens
            continue
        while not data.endswith(b"\n"):
            data += connection.recv(_MAX_MESSAGE)
        if not os.fork():
            listener.close()
            os.close(end)
            run_message(json.loads(data), connection, descriptors)
            return
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def run_message(
    message: Mapping[str, Any], connection: socket.socket, descriptors: Sequence[int]
) -> None:
    """Become the process of a message."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    role = message["role"]
    if role != "fork_server" and (pid := os.fork()):
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # the command was killed
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    if role != "command":
        os.setsid()
        connection.sendall(f"{os.getpid()}\n".encode())
    connection.close()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    # The streams of the server may be of another kind: a pipe cannot seek.
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = os.fdopen(number, mode, 1 if name == "stderr" else -1, "utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    time.tzset()
    code: Any = 0
    try:
        {"command": run_main, "fork_server": run_fork_server, "call": run_call}[role](message)
    except SystemExit as end:
        code = end.code
    # An interpreter that ends would copy the memory of all modules to release it.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(int(code or 0))


def pytest_configure() -> None:
    """Use the servers of another process in this one, which loads this module as a plugin."""
    use_workers(json.loads(os.environ[_SERVERS]))


def run_main(message: Mapping[str, Any]) -> None:
    """Run the program."""
    use_workers(message)
    sys.path[0] = message["folder"]
    sys.argv = ["exporter", *message["arguments"]]
    remove_test_modules()
    runpy.run_module("exporter", run_name="__main__", alter_sys=True)


def use_workers(message: Mapping[str, Any]) -> None:
    """Let the server of workers fork the processes that import the modules of workers."""
    from exporter.processes import child_call, fork_server_client

    for module in (child_call, fork_server_client):
        vars(module)["subprocess"] = make_subprocess(message)


@contextmanager
def call_in_forks() -> Iterator[None]:
    """Let the server of workers fork the calls of a worker that runs in this process."""
    from exporter.processes import child_call, make_worker_environment

    environment = make_worker_environment({**os.environ, "PYTHONPATH": str(ROOT)})
    with patch.object(child_call, "subprocess", make_subprocess(describe_workers(), environment)):
        yield


def make_subprocess(
    message: Mapping[str, Any], inherited: Mapping[str, str] | None = None
) -> SimpleNamespace:
    """Return the module `subprocess` with a `Popen` that uses the server of workers.

    Args:
        message: The address and the variables of the server.
        inherited: The variables of a worker that runs in the process of the tests.
    """
    from exporter.processes import child_call, fork_server_client

    call = (sys.executable, "-P", "-m", child_call.CALL_MODULE)

    def start(command: Sequence[str], **options: Any) -> Any:
        is_fork_server = tuple(command) == fork_server_client.FORK_SERVER_COMMAND
        environment = options["env"]
        if inherited is not None:  # a worker in the process of the tests
            environment = {**inherited, "TMPDIR": environment["TMPDIR"]}
        is_usual = select_start_variables(environment) == message.get("variables")
        if not is_usual or not (is_fork_server or tuple(command[:4]) == call):
            return subprocess.Popen(command, **options)
        content = {"folder": str(Path.cwd()), "environment": environment}
        if not is_fork_server:
            content |= {"role": "call", "arguments": command[4:]}
            return CallProcess(message["workers"], content, **options)
        content |= {"role": "fork_server"}
        with Path(os.devnull).open("wb") as null:
            streams = [options["stdin"], options["stdout"], null.fileno()]
            return ForkServerProcess(send(message["workers"], content, streams))

    return SimpleNamespace(**{**vars(subprocess), "Popen": start})


class CallProcess:
    """A call of a function, which is no child of this process, as a `subprocess.Popen`."""

    def __init__(
        self, path: str, content: Mapping[str, Any], *, stdout: int, stderr: Any, **_: Any
    ) -> None:
        reader, writer = os.pipe()
        with Path(os.devnull).open("r+b") as null, os.fdopen(writer, "wb") as pipe:
            output = null if stdout == subprocess.DEVNULL else pipe
            streams = [stream.fileno() for stream in (null, output, stderr)]
            self._responses = open_request(path, content, streams)
        self.stdout = os.fdopen(reader, encoding="utf-8", errors="replace")
        self.pid = int(self._responses.readline())
        self._code: int | None = None

    def wait(self) -> int:
        """Wait for the end of the process and return its code."""
        if self._code is None:
            with self._responses as responses:
                self._code = int(responses.readline())
        return self._code

    def kill(self) -> None:
        """Kill the process, unless it was waited for."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkServerProcess:
    """A fork server that is no child of this process, with methods of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return 0 if the process ended."""
        return 0 if select.select([self._descriptor], [], [], 0.0)[0] else None

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait until the process ends."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired([], timeout)


def run_fork_server(_: Mapping[str, Any]) -> None:
    """Become the fork server of an export, whose imports take no time a second time."""
    from exporter.worker import fork_server
    from exporter.worker.dependencies import opened_files

    opened_files._READS = opened_files.VariableReads()  # it reads the environment first
    remove_test_modules()
    sys.modules["__main__"] = fork_server
    sys.argv = [fork_server.__file__]
    fork_server.main()


def run_call(message: Mapping[str, Any]) -> None:
    """Call the function of a command, whose imports take no time a second time."""
    from exporter.processes import child_call

    remove_test_modules()
    sys.modules["__main__"] = child_call
    sys.argv = [str(child_call.__file__), *message["arguments"]]
    child_call.main()


def remove_test_modules() -> None:
    """Remove the modules of the tests, which would be dependencies of each model."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]


def import_modules(kind: str) -> None:
    """Import the modules of a command, or those of all workers."""
    if kind == "workers":
        from exporter.worker.fork_server import preload, preload_capture

        preload()
        preload_capture()
    else:
        from tests.architecture.test_layout import HEAVY, HEAVY_PACKAGES

        other_processes = {*HEAVY_PACKAGES, "child", "cluster", "__main__"}
        for path in sorted((ROOT / "exporter").rglob("*.py")):  # no package is imported to list it
            parts = path.relative_to(ROOT).with_suffix("").parts
            if not other_processes.intersection(parts):
                importlib.import_module(".".join(parts).removesuffix(".__init__"))
        importlib.import_module("jinja2")
        assert HEAVY.isdisjoint(sys.modules), "a fork copies the tables of their memory"
    complete_models()
    gc.freeze()  # the garbage collector of a fork would copy the memory of all objects


def complete_models() -> None:
    """Build the validators of all records, which each fork would build at their first use."""
    from exporter.core.frozen_model import FrozenModel

    classes = [FrozenModel]
    for each in classes:
        classes += each.__subclasses__()
        each.model_rebuild(raise_errors=False)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(forward(sys.argv[2:]))
    serve(sys.argv[1], int(sys.argv[2]))
