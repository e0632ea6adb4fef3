"""Write a recipe into pyproject.toml, whose other lines stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import tomlkit

from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.core.toml_table import SETTINGS_FILE, read_toml_table
from exporter.tools.environments.recipes import Recipe


def add_recipe(root: Path, recipe: Recipe) -> str:
    """Append the tables to the file and return them.

    Raises:
        ExporterError: MANIFEST, if the file is invalid or has such a table already.
    """
    path = root / SETTINGS_FILE
    text = ""
    if path.exists():
        content = read_toml_table(path)
        if content.problem:
            location = Location(file=SETTINGS_FILE, line=content.line)
            problem = Problem(message=content.problem, location=location)
            raise ExporterError(ExitCode.MANIFEST, (problem,))
        text = content.text
        _require_no_conflict(content.table, recipe)
    tables = _format_tables(recipe)
    separator = "\n" if text.endswith("\n") or not text else "\n\n"
    changed = f"{text}{separator}{tables}" if text else tables
    try:
        tomlkit.parse(changed)
    except tomlkit.exceptions.TOMLKitError as error:
        message = f"{SETTINGS_FILE}: the tables cannot be appended: {error}; write them by hand"
        raise ExporterError(ExitCode.MANIFEST, f"{message}:\n{tables}") from error
    write_text(path, changed)
    return tables


def _require_no_conflict(table: dict[str, object], recipe: Recipe) -> None:
    settings = table.get("tool")
    settings = settings.get("exporter") if isinstance(settings, dict) else None
    if not isinstance(settings, dict):
        return
    if isinstance(settings.get("devices"), list):
        message = "`devices` is a list; rename it to `default_devices`, then add the environment"
        raise ExporterError(ExitCode.MANIFEST, f"{SETTINGS_FILE}: tool.exporter: {message}")
    for key in ("environments", "devices"):
        tables = settings.get(key)
        if isinstance(tables, dict) and recipe.name in tables:
            message = f"[tool.exporter.{key}.{recipe.name}] already exists; use another --name"
            raise ExporterError(ExitCode.MANIFEST, f"{SETTINGS_FILE}: {message}")


def _format_tables(recipe: Recipe) -> str:
    """Return the tables as TOML; JSON has the same strings and lists."""
    lines = [
        f"[tool.exporter.environments.{recipe.name}]",
        f"requirements = {json.dumps(recipe.requirements)}",
        *([f"python = {json.dumps(recipe.python)}"] if recipe.python else []),
        "",
        f"[tool.exporter.devices.{recipe.name}]",
        f"runtime = {json.dumps(recipe.runtime)}",
        *([f"providers = {json.dumps(recipe.providers)}"] if recipe.providers else []),
        f"environment = {json.dumps(recipe.name)}",
    ]
    return "\n".join(lines) + "\n"
