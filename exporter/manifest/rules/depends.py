"""Resolve the dependencies that an entry lists itself."""

from __future__ import annotations

import posixpath

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.model import Depends
from exporter.manifest.rules.references import References
from exporter.manifest.syntax.message_format import quote
from exporter.processes.environment import is_fixed, is_passed


def resolve_depends(
    model: EffectiveSettings, references: References, variables: tuple[str, ...]
) -> Depends:
    """Return the dependencies; report globs without files and variables that workers lack.

    Args:
        model: The entry.
        references: The project's files.
        variables: Environment variables that the project lists for workers.
    """
    table = model.settings.depends
    path = ("depends", "files")
    folder = model.find_layer(path).folder
    files = []
    for index, text in enumerate(table.files):
        # Python's `**` at the end matches only folders.
        pattern = f"{text}/*" if text.endswith("**") else text
        name = posixpath.normpath(posixpath.join(folder, pattern))
        if pattern.startswith("/") or "\\" in pattern or ":" in pattern:
            message = "expected a path relative to the manifest, with forward slashes"
            model.add_problem((*path, index), f"{message}, got {quote(pattern)}")
        elif name.startswith("../"):
            message = f"{quote(pattern)} is outside the project; use files inside it"
            model.add_problem((*path, index), message)
        elif not references.has_match(name):
            model.add_problem((*path, index), f"no file matches {quote(name)}; correct the glob")
        files.append(posixpath.relpath(name, model.entry.folder or "."))
    for index, name in enumerate(table.environment):
        key = ("depends", "environment", index)
        if is_fixed(name, variables):
            model.add_problem(key, f"{name} has the same value in all workers; remove it")
        elif name not in variables and not is_passed(name, variables):
            message = f"workers do not receive {name}; add it to `environment` in [tool.exporter]"
            model.add_problem(key, message)
    return Depends(files=tuple(files), environment=table.environment)
