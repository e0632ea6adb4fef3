"""Start `server` in another environment, which does not contain this tool.

The folder of this file is the argument of Python. The packages above it are replaced by empty ones,
because they need another Python and other packages.
"""

import importlib
import sys
import types
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent

if __name__ == "__main__":
    # The names of these modules must not replace installed packages.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != _FOLDER]
    for name, folder in (
        ("exporter", _FOLDER.parents[1]),
        ("exporter.runtimes", _FOLDER.parent),
        ("exporter.runtimes.drivers", _FOLDER),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    importlib.import_module("exporter.runtimes.drivers.server").serve()
