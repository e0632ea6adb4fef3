"""The public interface of commands in other packages, by entry points of `exporter.commands`."""

from exporter.api.gate_run import read_results
from exporter.cli.options import json_option, root_option, selection_options
from exporter.cli.output.tables import open_project, print_result_notes
from exporter.cli.output.terminal import print_document, print_error, print_line, print_table
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.planning import Selection
from exporter.planning.plan import make_plan

__all__ = [
    "ExitCode",
    "ExporterError",
    "FrozenModel",
    "Items",
    "Selection",
    "json_option",
    "make_plan",
    "open_project",
    "print_document",
    "print_error",
    "print_line",
    "print_result_notes",
    "print_table",
    "read_results",
    "root_option",
    "selection_options",
]
