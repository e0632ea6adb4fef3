"""What is installed and whether it fits, what the machine offers, and how the project stands.

In: the project's folder, the environment. Out: findings, each a line.
"""

from exporter.doctor.finding import Examination, Finding, Level
from exporter.doctor.installed import examine_installed, examine_warm_workers
from exporter.doctor.machine import examine_machine
from exporter.doctor.project import examine_devices, examine_project
from exporter.doctor.stored import examine_build, examine_store

__all__ = [
    "Examination",
    "Finding",
    "Level",
    "examine_build",
    "examine_devices",
    "examine_installed",
    "examine_machine",
    "examine_project",
    "examine_store",
    "examine_warm_workers",
]
