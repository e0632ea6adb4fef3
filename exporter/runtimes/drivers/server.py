"""The program of a runtime process: it loads files and runs them on the inputs of messages.

A message between two processes is a JSON header, followed by the memory of its arrays. Nothing is
pickled, so a message of a damaged process cannot run code.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, BinaryIO

import numpy as np

from exporter.runtimes.drivers.driver import (
    NUMPY_DTYPES,
    Bits,
    DriverFailure,
    FileRequest,
    LoadFigures,
    Value,
    load_file,
    measure_load,
    name_module,
)

_LENGTH = struct.Struct("<Q")


def write_message(stream: IO[bytes], header: dict[str, Any], values: list[Value]) -> None:
    """Write a header and values.

    Raises:
        TypeError: If a value has a dtype that cannot be passed.
        OSError: If the other process has ended.
    """
    blocks: list[Any] = []
    described = [_describe(value, blocks) for value in values]
    text = json.dumps({**header, "values": described}).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    stream.writelines(blocks)
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], list[Value]]:
    """Return the next header and its values.

    Raises:
        EOFError: If the other process has ended.
    """
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    header: dict[str, Any] = json.loads(_read(stream, length))
    values = [_restore(each, stream) for each in header.pop("values")]
    return header, values


def _describe(value: Value, blocks: list[Any]) -> dict[str, Any]:
    """Return the description of a value, and append its memory to `blocks`."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, Bits):
        return {**_describe(value.values, blocks), "bits": value.dtype}
    if isinstance(value, (list, tuple)):
        return {"kind": "sequence", "items": [_describe(item, blocks) for item in value]}
    array = np.asarray(value)
    shape = list(array.shape)
    if array.dtype.kind in "OUST":
        items = [_to_text(item) for item in array.reshape(-1).tolist()]
        return {"kind": "strings", "shape": shape, "items": items}
    if array.dtype.name not in NUMPY_DTYPES:
        raise TypeError(f"a value of dtype {array.dtype} cannot be passed")
    data = np.ascontiguousarray(array)
    blocks.append(data.reshape(-1).view(np.uint8).data if data.size else b"")
    return {"kind": "tensor", "dtype": array.dtype.name, "shape": shape, "bytes": data.nbytes}


def _restore(described: dict[str, Any], stream: IO[bytes]) -> Value:
    kind = described["kind"]
    if kind == "none":
        return None
    if kind == "sequence":
        return [_restore(item, stream) for item in described["items"]]
    if kind == "strings":
        strings = np.empty(len(described["items"]), dtype=object)
        strings[:] = described["items"]
        return strings.reshape(described["shape"])
    if described["dtype"] not in NUMPY_DTYPES:
        raise ValueError(f"the message has the dtype {described['dtype']}")
    data = bytearray(_read(stream, described["bytes"]))  # a writable array
    array = np.frombuffer(data, dtype=described["dtype"]).reshape(described["shape"])
    return Bits(described["bits"], array) if "bits" in described else array


def _read(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _to_text(item: Any) -> str:
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


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
            parts = {"problem": failure.problem, "message": failure.message}
            write_message(target, {"kind": failure.kind, **parts}, [])


def _measure(small: FileRequest, request: FileRequest, inputs: dict[str, Value]) -> LoadFigures:
    return measure_load(
        lambda: load_file(small), lambda: load_file(request), lambda file: file.run(inputs)
    )


def _respond(target: BinaryIO, response: dict[str, Any], outputs: list[Value]) -> None:
    try:
        write_message(target, response, outputs)
    except TypeError as error:  # an output that cannot be passed
        raise DriverFailure("run", str(error)) from error
