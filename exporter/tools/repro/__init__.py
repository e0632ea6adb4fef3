"""The command `repro`: a folder that shows the failure of a cell without this tool."""

from exporter.tools.repro.repro_folder import ReproducedCell, write_reproducer

__all__ = ["ReproducedCell", "write_reproducer"]
