"""The side that `exporter gate --against` compares with.

In: a manifest and the name of a revision. Out: the manifests and the baseline of that revision.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from exporter.cli.output.terminal import print_error
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.git import Checkout, check_out, find_last_change
from exporter.gate import ProjectState
from exporter.manifest import Manifest, load_project
from exporter.records.baseline import parse_baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSide:
    """What a branch is held against."""

    side: ProjectState
    accepted_in: str
    """The commit that changed its baseline last, or the revision's own, and the day."""


def side_of(manifest: Manifest, revision: str) -> RevisionSide:
    """The project at the revision.

    Raises:
        ExporterError: as `check_out`; RED, where the revision has no baseline; UNREADABLE, where
            its manifests or its baseline cannot be read.
    """
    root = Path(manifest.project.root)
    with check_out(root, revision, dict(os.environ)) as found:
        print_error(f"held against {found.name} of {found.commit.day}")
        then = _manifest(found, root)
        name = f"{then.project.reports}/baseline.json"
        try:
            content = (found.root / name).read_bytes()
        except OSError as error:
            message = f"{found.name}: has no {name}: nothing is accepted there yet"
            raise ExporterError(ExitCode.RED, message) from error
        baseline = parse_baseline(content, f"{found.name}: {name}")
        changed = find_last_change(root / name, dict(os.environ), found.commit.id) or found.commit
        return RevisionSide(side=ProjectState(manifest=then, baseline=baseline), accepted_in=str(changed))


def _manifest(found: Checkout, root: Path) -> Manifest:
    try:
        return load_project(found.root, beside=root)
    except ExporterError as error:
        for problem in error.problems:
            print_error(f"{found.name}: {problem}")
        message = f"the manifests of {found.name} cannot be read; compare with a later revision"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
