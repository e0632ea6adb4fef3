"""`--changed`: select the cells that changed since a revision of git."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from exporter.cache.fingerprint import compute_fingerprint
from exporter.cache.states import ALL_FILES, MODULES, split_listing
from exporter.core.errors import ExporterError
from exporter.core.git import Git
from exporter.core.revision import check_out
from exporter.manifest import Manifest, load_project
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.planning.plan import Plan, list_cells
from exporter.records.record import CellId, Record


def find_changed_cells(
    manifest: Manifest, plan: Plan, revision: str, environment: Mapping[str, str]
) -> tuple[set[CellId], str]:
    """Return the cells with another entry, device or file than at a revision, or without a record.

    Files that git ignores, packages and variables are not compared.

    Returns:
        The cells, and the problem if there are none.
    """
    project = manifest.project
    root = Path(project.root)
    with check_out(root, revision, environment, "--changed") as checkout:
        names = _list_changed_files(root, checkout.commit.id, environment)
        try:
            before = load_project(checkout.root, root, keep_invalid=True)
        except ExporterError:  # no valid project: each cell is a change
            before = Manifest(project=project, models=())
    specs = {spec.id: spec for spec in before.models}
    devices = before.project.device_names
    stored = StoredRecords(BuildFolder.from_project(project))
    changed = set[CellId]()
    for planned in plan.to_run:
        cell, spec = planned.cell, manifest.find_model(planned.cell.model)
        old, record = specs.get(cell.model), stored.get(cell)
        if (
            old is None
            or record is None
            or cell not in list_cells(old)
            or cell.device not in devices
            or before.project.find_device(cell.device) != project.find_device(cell.device)
            or compute_fingerprint(old, root=root) != compute_fingerprint(spec, root=root)
            or any(_differs(file, names) for file in _list_files(record, root))
        ):
            changed.add(cell)
    return changed, f"no selected cell has a change since {checkout.name}"


def _list_files(record: Record, root: Path) -> set[str]:
    outside = (os.path.relpath(root / name, root) for name in record.packages if "/" in name)
    return {*(source.file for source in record.sources), *outside}


def _differs(file: str, names: Mapping[str, bool]) -> bool:
    """Return True if a dependency is among the changed files, or is a list of such names."""
    listing = split_listing(file)
    if listing is None:
        parents = map(str, PurePosixPath(file).parents)  # one of them may be a submodule
        return file in names or any(parent in names for parent in parents)
    folder, pattern, modules = listing
    added = (PurePosixPath(changed) for changed, is_new in names.items() if is_new)
    if pattern == ALL_FILES:
        return any(path.is_relative_to(folder) for path in added)
    # A package counts as its `__init__.py`.
    paths = (path.parent if path.name == "__init__.py" else path for path in added)
    return any(
        str(path.parent) == folder
        and (not path.suffix or path.suffix in MODULES)
        and (not modules or path.name.partition(".")[0] in modules)
        for path in paths
    )


def _list_changed_files(root: Path, commit: str, environment: Mapping[str, str]) -> dict[str, bool]:
    """Return the files that differ from a commit, also untracked ones that git does not ignore.

    Paths are relative to the root. A value is True if the file was added or removed.

    Raises:
        ExporterError: ENVIRONMENT if git cannot compare.
    """
    git = Git(root, environment)
    top = git.run("rev-parse", "--show-toplevel")
    fields = git.run(
        "diff", "--no-renames", "--no-ext-diff", "--name-status", "-z", commit, "--"
    ).split("\0")
    names = dict(zip(fields[1::2], fields[::2], strict=False))
    untracked = Git(Path(top), environment).run("ls-files", "--others", "--exclude-standard", "-z")
    names |= dict.fromkeys(filter(None, untracked.split("\0")), "A")
    root = root.resolve()
    return {os.path.relpath(Path(top, name), root): kind in "AD" for name, kind in names.items()}
