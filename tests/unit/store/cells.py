"""Create the folder of an exported model and a store for it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from exporter.jobs import JobFolder, write_json
from exporter.records.record import Record, Source
from exporter.store import Store, StoreLimits
from tests.unit.factory import make_artifact, make_record

PARTS = {"entry": "e", "checks": "c", "device": "d", "tool.torch": "2.13.0 aa"}
WIDE = StoreLimits(size=1 << 30, age=3600.0)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_cell(
    folder: Path,
    cell: str = "tiny/18/cpu",
    content: str = "graph",
    weights: bytes = b"weights",
    **fields: Any,
) -> Record:
    """Return a record with the status `pass`, and write its files."""
    opset = cell.split("/")[1]
    data = f"weights-{digest(weights)[:16]}.data"
    files = {
        f"{opset}.onnx": content.encode(),
        data: weights,
        "reference.json": b"what PyTorch says",
        "test_data_set_0/input_0.pb": b"in",
        "test_data_set_0/output_0.pb": b"out",
        "logs/model.log": b"",
        f"logs/{opset}.log": b"",
        f"logs/{opset}/report.md": b"kept",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # the file may have a second name in a store
        (folder / name).write_bytes(text)
    artifact = make_artifact(
        "tiny", int(opset), sha256=digest(content.encode()), external_data=(data,)
    )
    defaults: dict[str, Any] = {
        "artifact": artifact,
        "fingerprint": dict(PARTS),
        "sources": (Source(file="net.py", state="1" * 64),),
        "packages": {"timm": "1.0 ab"},
        "log": f"tiny/logs/{opset}.log",
    }
    record = make_record(cell, **{**defaults, **fields})
    write_json(JobFolder(folder).record(record.cell), record)
    return record


def make_store(root: Path, limits: StoreLimits = WIDE, *, is_read_only: bool = False) -> Store:
    return Store(root / "store", limits, is_read_only=is_read_only)


def everything(folder: Path) -> dict[str, bytes]:
    """Return the content of all files of an entry by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "records"
    }
