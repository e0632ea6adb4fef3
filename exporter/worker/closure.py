"""Which of the project's files the model was made from.

In: what Python has loaded. Out: each file under the project's root with its hash, sorted.

Looked at after the work, so that an import inside `forward` counts too. Installed packages are
told by their versions, our own modules by the fingerprint's `tools`.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from exporter.fingerprint import file_digest
from exporter.record import Source


def loaded_sources(root: Path) -> tuple[Source, ...]:
    """Every module file of the project that is loaded now."""
    root = root.resolve()
    installed = [
        Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib")
    ]
    own = Path(__file__).resolve().parents[1]
    files = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        # torch gives some modules a bare name that is no file.
        if not isinstance(name, str) or not Path(name).is_absolute():
            continue
        path = Path(name).resolve()
        outside = not path.is_relative_to(root) or path.is_relative_to(own)
        if not outside and not any(path.is_relative_to(folder) for folder in installed):
            files.add(path)
    return tuple(
        Source(file=path.relative_to(root).as_posix(), sha256=file_digest(path))
        for path in sorted(files)
    )
