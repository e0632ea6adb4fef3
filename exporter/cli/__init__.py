"""The command line: the only package that prints, exits and reads environment variables."""

import sys
from typing import NoReturn

from exporter.core.errors import ExitCode
from exporter.core.system import IS_WINDOWS

_WINDOWS = "exporter: runs on Linux and macOS; on Windows, run it in WSL (`wsl --install`)\n"


def main() -> NoReturn:
    if IS_WINDOWS:
        sys.stderr.write(_WINDOWS)
        sys.exit(ExitCode.ENVIRONMENT)
    from exporter.cli import entry_point  # modules that Windows lacks

    entry_point.main()


__all__ = ["main"]
