"""A known example of what a record depends on: a recorder that misses it is silent.

Nothing that it names exists, so it reads nothing, and nothing of it remains in a record.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import linecache
import os
import sys
from pathlib import Path

from exporter.records.record import KNOWN_EXAMPLE
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.opened_files import OpenedFiles, VariableReads, watch_alone
from exporter.worker.dependencies.packages import SEARCHES

_NAME = "exporter_known_example"
_OPENED, _LISTED, _TESTED = (f"/{_NAME}/{access}" for access in ("open", "list", "test"))
#: It has the name of a file of the project: recorders look for the owner of the code.
_CODE = f"""
def ignore(function, argument):
    try:
        function(argument)
    except Exception:  # nothing exists there, and the error of a replaced function is unknown
        pass

ignore(open, {_OPENED!r})
ignore(os.listdir, {_LISTED!r})
ignore(os.stat, {_TESTED!r})
ignore(linecache.getlines, {_OPENED!r})
ignore(os.environ.get, {_NAME!r})
ignore(importlib.util.find_spec, {_NAME!r})
ignore(importlib.metadata.version, {_NAME!r})
"""


def list_unrecorded(opened: OpenedFiles, read: VariableReads, root: Path) -> dict[str, str]:
    """Return what this worker would not record, each with the reason; usually nothing.

    `opened`, `read`: The recorders of this job; those of packages and code must watch, too.
    """
    code = compile(_CODE, str(root / f"{_NAME}.py"), "exec")
    names = {"os": os, "importlib": importlib, "linecache": linecache}
    finders = sys.meta_path
    with opened.trace_example(_OPENED) as traced, watch_alone() as example:
        # Other finders would list folders, which a later import of the model then would not.
        sys.meta_path = [each for each in finders if each is SEARCHES]
        try:
            exec(code, names)  # noqa: S102 - the constant `_CODE`
        finally:
            sys.meta_path = finders
    seen = {
        "files that Python opens": example.has_opened(_OPENED),
        "files that native code opens": traced != [False],
        "folders that the model lists": example.has_listed(_LISTED),
        "files for which the model looks": example.has_tested(_TESTED),
        "texts of code that are read": EXECUTED.forget_text(_OPENED),
        "variables that the model reads": read.forget(_NAME),
        "modules for which the model searches": SEARCHES.forget_module(_NAME),
        "packages for which the model searches": SEARCHES.forget_distribution(_NAME),
    }
    reason = f"this Python does not report those {KNOWN_EXAMPLE}"
    return {subject: reason for subject, is_seen in seen.items() if not is_seen}
