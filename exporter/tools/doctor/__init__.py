"""The command `doctor`: installed packages, devices, machine, project and stored results."""

from exporter.tools.doctor.installed_packages import examine_fork_server, examine_packages
from exporter.tools.doctor.machine import examine_machine
from exporter.tools.doctor.project_state import (
    examine_devices,
    examine_environments,
    examine_project,
)
from exporter.tools.doctor.protocol import Diagnosis, Examination, Level
from exporter.tools.doctor.stored_results import examine_build, examine_remote, examine_store

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
