"""The program of a runtime process: it loads one file and runs it on the inputs of each message.

Input: messages on stdin. Output: messages on the former stdout; libraries print to stderr instead.
"""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO

from exporter.runtimes.drivers.driver import Driver, DriverFailure, FileRequest
from exporter.runtimes.drivers.driver_table import load_file
from exporter.runtimes.drivers.frames import read_message, write_message


def serve() -> None:
    """Respond to messages until the parent closes stdin."""
    source = sys.stdin.buffer
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    header, _ = read_message(source)
    try:
        driver = load_file(FileRequest(**header))
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
        _run(driver, header, values, target)


def _run(driver: Driver, header: dict[str, Any], values: Any, target: BinaryIO) -> None:
    try:
        outputs = driver.run(dict(zip(header["inputs"], values)))
        write_message(target, {}, list(outputs))
    except TypeError as error:  # an output that cannot be passed
        write_message(target, _describe_failure(DriverFailure("run", str(error))), [])
    except DriverFailure as failure:
        write_message(target, _describe_failure(failure), [])


def _describe_failure(failure: DriverFailure) -> dict[str, Any]:
    return {"kind": failure.kind, "problem": failure.problem, "message": failure.message}
