"""Read a project of which some entries or files are invalid, and print their problems."""

from __future__ import annotations

from pathlib import Path

from exporter.cli.output.terminal import print_error, print_problem
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import pluralize
from exporter.manifest import Manifest, load_project


def open_project(root: Path) -> Manifest:
    """Return the manifest, and print its problems. The cells of an invalid entry are red.

    Raises:
        ExporterError: MANIFEST if no entry can be read.
    """
    manifest = load_project(root, keep_invalid=True)
    print_file_problems(manifest)
    for spec in manifest.models:
        if spec.problems:
            count = pluralize(len(spec.problems), "problem")
            command = manifest.project.command.format("check")
            print_error(f"{spec.location}: {spec.id}: {count}; `{command}` lists them")
    return manifest


def print_file_problems(manifest: Manifest) -> None:
    """Print the problems that belong to no cell."""
    for problem in manifest.problems:
        print_problem(problem)


def require_readable_files(manifest: Manifest) -> None:
    """Raise an error if the models of a file are unknown, before their results are removed.

    Raises:
        ExporterError: MANIFEST, with the problems.
    """
    if manifest.problems:
        raise ExporterError(ExitCode.MANIFEST, manifest.problems)
