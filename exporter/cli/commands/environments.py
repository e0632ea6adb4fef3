"""`exporter environments`: list the environments of runtimes, and print the tables of one."""

from __future__ import annotations

import re
from pathlib import Path

import click

from exporter.cli.options import root_option
from exporter.cli.output.terminal import print_error, print_line, print_table
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import format_bytes
from exporter.environments import list_environments
from exporter.manifest import load_settings
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.pipeline.environments import list_garbage, locate_environment
from exporter.tools.environments import RECIPES, make_recipe


@click.group()
def environments() -> None:
    """Manage the separate environments of runtimes.

    A device with `environment` runs its files in a process of that environment, such as an older
    ONNX Runtime. The first export that needs an environment creates it.
    """


@environments.command("list")
@root_option
def list_command(root: Path) -> int:
    """List the environments of pyproject.toml, with their packages if they are created."""
    project = load_settings(root)
    sizes = {
        each.key: each.measure_size() for each in list_environments(project.environments_folder)
    }
    rows = []
    for environment in project.environments:
        located = locate_environment(project, environment)
        devices = [
            device.name
            for device in project.devices
            if device.environment and device.environment.name == environment.name
        ]
        size = sizes.get(environment.definition.key, 0)
        created = f"{located.runtime_versions} ({format_bytes(size)})" if size else "not created"
        used = f"devices: {', '.join(devices)}" if devices else "no device uses it"
        rows.append((environment.name, ", ".join(environment.requirements), created, used))
    for toolchain in project.toolchains:
        size = sizes.get(toolchain.definition.key, 0)
        created = f"created ({format_bytes(size)})" if size else "not created"
        used = f"toolchain of devices such as {DeviceName.build('cpu', toolchain.name)}"
        rows.append((toolchain.name, ", ".join(toolchain.requirements), created, used))
    if not rows:
        print_line("no environment; `exporter environments add onnxruntime 1.17` prints one")
    print_table(rows)
    for item in list_garbage(project):
        print_line(f"{', '.join(item.requirements)}: not declared; `exporter gc` removes it")
    return ExitCode.OK


@environments.command()
@click.argument("package", metavar=f"[{'|'.join(RECIPES)}]")
@click.argument("version")
@click.option("--name", default="", help="The name of the environment and of the device.")
@click.option("--python", default="", help="The interpreter, a path or a name on PATH.")
def add(package: str, version: str, name: str, python: str) -> int:
    """Print the tables of an environment and its device for pyproject.toml.

    VERSION is `1.17` for the last patch release, or `1.17.3`.
    """
    if name and not re.fullmatch(ID_PATTERN, name):
        message = f"--name: expected a name of a-z, 0-9, '_', '.' and '-', got '{name}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    recipe = make_recipe(package, version, name, python)
    print_line(str(recipe))
    print_error(f'append it to pyproject.toml, and add "{recipe.name}" to `devices` of the models')
    return ExitCode.OK
