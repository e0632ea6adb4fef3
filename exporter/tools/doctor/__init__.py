"""The command `doctor`: installed packages, devices, machine, project and stored results."""

from exporter.tools.doctor.examinations import (
    Diagnosis,
    Examination,
    Level,
    examine_build,
    examine_devices,
    examine_environments,
    examine_fork_server,
    examine_machine,
    examine_packages,
    examine_project,
    examine_remote,
    examine_store,
)

__all__ = [
    "Diagnosis",
    "Examination",
    "Level",
    "examine_build",
    "examine_devices",
    "examine_environments",
    "examine_fork_server",
    "examine_machine",
    "examine_packages",
    "examine_project",
    "examine_remote",
    "examine_store",
]
