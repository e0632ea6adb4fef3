"""The program of a runtime process: it loads one file and runs it on the inputs of each message."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO

from exporter.runtimes.drivers.driver import Driver, DriverFailure, FileRequest, Value
from exporter.runtimes.drivers.driver_table import load_file
from exporter.runtimes.drivers.frames import read_message, write_message
from exporter.runtimes.drivers.load_figures import measure_load


def serve() -> None:
    """Respond to messages until the parent closes stdin."""
    source = sys.stdin.buffer
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    first, _ = read_message(source)
    try:
        driver = load_file(FileRequest(**first))
        placement = driver.find_placement()
    except DriverFailure as failure:
        write_message(target, _describe_failure(failure), [])
        return
    loaded = {"outputs": list(driver.output_names), "placement": placement and list(placement)}
    write_message(target, loaded, [])
    while True:
        try:
            header, values = read_message(source)
        except EOFError:
            return
        inputs = dict(zip(header["inputs"], values))
        if "measure" in header:
            _measure(FileRequest(**first), FileRequest(**header["measure"]), inputs, target)
        else:
            _run(driver, inputs, target)


def _measure(
    small: FileRequest, request: FileRequest, inputs: dict[str, Value], target: BinaryIO
) -> None:
    try:
        figures = measure_load(
            lambda: load_file(small), lambda: load_file(request), lambda file: file.run(inputs)
        )
        write_message(target, figures._asdict(), [])
    except DriverFailure as failure:
        write_message(target, _describe_failure(failure), [])


def _run(driver: Driver, inputs: dict[str, Value], target: BinaryIO) -> None:
    try:
        outputs = driver.run(inputs)
        write_message(target, {}, list(outputs))
    except TypeError as error:  # an output that cannot be passed
        write_message(target, _describe_failure(DriverFailure("run", str(error))), [])
    except DriverFailure as failure:
        write_message(target, _describe_failure(failure), [])


def _describe_failure(failure: DriverFailure) -> dict[str, Any]:
    return {"kind": failure.kind, "problem": failure.problem, "message": failure.message}
