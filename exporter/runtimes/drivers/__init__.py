"""Drivers: the code that loads and runs a file in one runtime, with numpy and the runtime only.

A driver runs in this process, or in one of another environment (`__main__`). That process has
another Python: the modules keep to the syntax of Python 3.8 and import nothing else of this tool.
"""

from pathlib import Path

#: The argument of the Python that runs `__main__`.
DRIVER_FOLDER = Path(__file__).parent
