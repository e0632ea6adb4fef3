"""The program of a runtime process: it loads files and runs them on the inputs of messages."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

from exporter.runtimes.drivers.driver import (
    DriverFailure,
    FileRequest,
    Value,
    load_file,
    name_module,
)
from exporter.runtimes.drivers.frames import read_message, write_message
from exporter.runtimes.drivers.load_figures import LoadFigures, measure_load


def serve() -> None:
    """Respond to messages until the parent closes stdin."""
    source = sys.stdin.buffer
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = driver = None
    while True:
        try:
            header, values = read_message(source)
        except EOFError:
            return
        if "import" in header:
            with suppress(Exception):  # the first file reports it
                import_module(name_module(header["import"]))
            continue
        if "release" in header:
            driver = None
            continue
        try:
            if "load" in header:
                request, driver = FileRequest(**header["load"]), None
                driver = load_file(request)
                placement = driver.find_placement()
                loaded = {"outputs": list(driver.output_names)}
                _respond(target, {**loaded, "placement": placement and list(placement)}, [])
            elif request is None or driver is None:
                raise DriverFailure("run", "no file is loaded")
            elif "measure" in header:
                inputs = dict(zip(header["inputs"], values))
                figures = _measure(request, FileRequest(**header["measure"]), inputs)
                _respond(target, figures._asdict(), [])
            else:
                outputs = driver.run(dict(zip(header["inputs"], values)))
                _respond(target, {}, list(outputs))
        except DriverFailure as failure:
            write_message(target, _describe_failure(failure), [])


def _measure(small: FileRequest, request: FileRequest, inputs: dict[str, Value]) -> LoadFigures:
    return measure_load(
        lambda: load_file(small), lambda: load_file(request), lambda file: file.run(inputs)
    )


def _respond(target: BinaryIO, response: dict[str, Any], outputs: list[Value]) -> None:
    try:
        write_message(target, response, outputs)
    except TypeError as error:  # an output that cannot be passed
        raise DriverFailure("run", str(error)) from error


def _describe_failure(failure: DriverFailure) -> dict[str, Any]:
    return {"kind": failure.kind, "problem": failure.problem, "message": failure.message}
