"""What is installed and whether it fits, what the machine offers, and how the project stands.

In: the project's folder, the environment. Out: findings, each a line.
"""

from exporter.tools.doctor.diagnosis import Diagnosis, Examination, Level
from exporter.tools.doctor.installed import examine_installed, examine_warm_workers
from exporter.tools.doctor.machine import examine_machine
from exporter.tools.doctor.project_state import examine_devices, examine_project
from exporter.tools.doctor.stored import examine_build, examine_store

__all__ = [
    "Diagnosis",
    "Examination",
    "Level",
    "examine_build",
    "examine_devices",
    "examine_installed",
    "examine_machine",
    "examine_project",
    "examine_store",
    "examine_warm_workers",
]
