"""The paths of the report of a project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exporter.manifest import Project
from exporter.records.baseline import FOLDER
from exporter.report.pages.templates import find_packaged_templates

#: In the build folder: the key of the inputs and the digests of the written files.
PAGES_NOTE = "reports.json"


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The paths that belong to the report of a project."""

    project: Project

    @property
    def reports(self) -> Path:
        return Path(self.project.root) / self.project.reports

    @property
    def baseline(self) -> Path:
        return self.reports / FOLDER

    @property
    def note(self) -> Path:
        return Path(self.project.root) / self.project.build / PAGES_NOTE

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that the pages depend on; they need not exist."""
        return Path(self.project.root) / self.project.templates, find_packaged_templates()
