"""A worker without torch that proves its cells at once, or fails as `ends.json` describes."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from exporter.jobs import Reference
from exporter.records.record import Record

JOB: dict[str, Any] = json.loads(Path(sys.argv[-1]).read_text())
ROOT, FOLDER, MODEL = Path(JOB["root"]), Path(JOB["folder"]), JOB["spec"]["id"]
ENDS: dict[str, str] = json.loads((ROOT / "ends.json").read_text())
#: The folder of the journal. A host of a cluster has its own copy of the project.
JOURNALS = Path(os.environ.get("FAULTS_FOLDER", ROOT))
PAUSE: float = json.loads((ROOT / "shape.json").read_text())["pause"]

REFERENCE = Reference(samples=(), noise=(), output_spread=()).to_json()


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("no pickles")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ends_the_host() -> None:
    """Kill the process of the host, of which this is a descendant: host, fork server, worker."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    host = int(status.rpartition(")")[2].split()[1])
    os.killpg(os.getpgid(host), signal.SIGKILL)
    time.sleep(60)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def exits() -> None:
    os._exit(0)


def hangs() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def hangs_in_c() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(600)  # which keeps the GIL


def forks() -> None:
    for _ in range(20):
        if os.fork() == 0:
            add_process(os.getpid())
            time.sleep(600)
    hangs()


def prints_without_end() -> None:
    while True:
        os.write(1, b"noise " * 10_000)


def fills_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with (FOLDER / "big").open("wb") as file:
        while True:
            file.write(b"0" * (1 << 16))


def allocates() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    blocks = []
    while True:
        blocks.append(bytearray(1 << 29))


def goes_elsewhere() -> None:
    os.chdir("/")
    raise SystemExit(3)


def deletes_its_folder() -> None:
    shutil.rmtree(FOLDER)
    os._exit(1)


def deletes_its_folder_and_hangs() -> None:
    shutil.rmtree(FOLDER)
    hangs()


def puts_a_file_for_the_records() -> None:
    shutil.rmtree(FOLDER / "records", ignore_errors=True)
    (FOLDER / "records").write_text("no folder")
    os._exit(1)


def puts_a_link_for_its_folder() -> None:
    elsewhere = ROOT / f"elsewhere-{MODEL}"
    elsewhere.mkdir(exist_ok=True)
    shutil.rmtree(FOLDER)
    FOLDER.symlink_to(elsewhere)
    os._exit(1)


def puts_a_pipe_for_the_record() -> None:
    for opset in JOB["opsets"]:
        path = FOLDER / "records" / f"{opset['opset']}.cpu.json"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    os._exit(1)


def puts_a_pipe_for_the_announcement() -> None:
    (FOLDER / "at_work.json").unlink()
    os.mkfifo(FOLDER / "at_work.json")
    hangs()


def puts_a_pipe_for_the_log() -> None:
    (FOLDER / "logs/model.log").unlink()
    os.mkfifo(FOLDER / "logs/model.log")
    os._exit(1)


def puts_a_huge_record() -> None:
    for name in ("records/7.cpu.json", "records/8.cpu.json", "reference.json"):
        (FOLDER / name).parent.mkdir(exist_ok=True)
        with (FOLDER / name).open("wb") as file:
            file.truncate(40 << 30)
    os._exit(1)


def daemonizes() -> None:
    """Leave a process in another session whose parent ended, with a child of its own."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork() == 0:
        add_process(subprocess.Popen(["sleep", "600"]).pid)
        add_process(os.getpid())
        os.close(1)
        os.close(2)
        time.sleep(600)
    time.sleep(0.3)
    os._exit(0)


def stops_the_fork_server() -> None:
    if is_forked():
        os.kill(os.getppid(), signal.SIGSTOP)
        hangs()
    os._exit(1)


def writes_to_the_fork_server() -> None:
    if is_forked():
        for line in (b'{"started": 1, "pid": 1}', b"\xff[", b'{"ended": 1, "code": 0}'):
            with Path(f"/proc/{os.getppid()}/fd/1").open("wb", buffering=0) as pipe:
                pipe.write(line + b"\n")
        hangs()
    os._exit(1)


def is_forked() -> bool:
    return b"fork_server" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes()


def raises() -> None:
    raise UnprintableError


def main() -> None:
    add_process(os.getpid())
    # Each worker has a child that sleeps longer.
    add_process(subprocess.Popen(["sleep", "600"]).pid)
    write_file(FOLDER / "reference.json", REFERENCE)
    for opset in JOB["opsets"]:
        for device in opset["devices"]:
            prove(opset["opset"], device["name"])


def prove(opset: int, device: str) -> None:
    cell = {"model": MODEL, "opset": opset, "device": device}
    name = f"{MODEL}/{opset}/{device}"
    at_work = {"stage": "convert", "cells": [cell], "log": f"{MODEL}/logs/model.log"}
    write_file(FOLDER / "at_work.json", json.dumps(at_work))
    time.sleep(PAUSE)
    content = f"the file of {MODEL} at {opset}"
    write_file(FOLDER / f"{opset}.onnx", content)
    weights = f"the weights of {MODEL}"
    weights_name = f"weights-{hashlib.sha256(weights.encode()).hexdigest()[:16]}.data"
    write_file(FOLDER / weights_name, weights)
    if name in ENDS:
        globals()[ENDS[name]]()
    digests = JOB["fingerprint"] | JOB["device_parts"][device]
    artifact = {
        "file": f"{MODEL}/{opset}.onnx",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "bytes": len(content),
        "external_data": [weights_name],
        "ir_version": 8,
        "nodes": 1,
        "parameters": 1,
        "opset_imports": {"": opset},
        "operators": {"Add": 1},
    }
    record = {"cell": cell, "status": "pass", "artifact": artifact, "fingerprint": digests}
    # With these times, the next run can divide the opsets of a model.
    record["seconds"] = {"capture": 1.0, "convert": 1.0}
    complete_record = Record.model_validate_json(json.dumps(record))
    write_file(FOLDER / "records" / f"{opset}.{device}.json", complete_record.to_json())
    with (JOURNALS / "journal").open("a") as journal:
        journal.write(f"{name}\n")
    if JOB["part"]:
        (JOURNALS / "divided").touch()


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.write_text(text)
    fresh.rename(path)


def add_process(pid: int) -> None:
    with (JOURNALS / "pids").open("a") as pids:
        pids.write(f"{pid}\n")


if __name__ == "__main__":
    main()
