"""Figures of the package: the border to optional things, and the size of the way to a verdict.

`python -m benchmarks.house` prints them. The way goes from a manifest to the gate. It should not
import optional things; `tests/architecture/test_border.py` has the statements that still do.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "exporter"
#: Groups of optional modules, as patterns of their paths in the package.
OPTIONAL = {
    "record, add, init": "tools/recording/* tools/new_project cli/commands/record "
    "cli/commands/init",
    "publish, verify, evidence": "tools/publish/* tools/verify/* api/evidence cli/commands/publish "
    "cli/commands/verify",
    "diagnosis": "worker/diagnose/*",
    "store": "cache/store/* api/project_store",
    "doctor, ops, diff": "tools/doctor tools/child/* tools/operators tools/file_changes "
    "cli/commands/doctor cli/commands/ops cli/commands/diff",
    "cluster": "pipeline/cluster/*",
    "repro": "tools/repro* cli/commands/repro",
    "review": "worker/reference/review worker/reference/rounding_runs",
    "contract changes": "gate/contract_changes",
    "samples by operator": "worker/export/file_samples",
    "environments": "environments pipeline/environments",
    "report files": "report/report_files",
    "rehearse": "api/rehearsal_run gate/upgrade_comparison cli/commands/rehearse",
    "shards, gc": "pipeline/shard_merge pipeline/garbage cli/commands/gc",
    "speed-ups": "worker/torch_private/export_speedups worker/torch_private/draft_export",
    "metric, rollout, comparators, components": "checks/metric_checks "
    "checks/comparison/comparators worker/reference/rollout worker/model/components",
    "other runtimes": "runtimes/drivers/backend_driver runtimes/drivers/openvino_driver "
    "runtimes/drivers/tract_driver",
    "pytest": "pytest_plugin testing api/finished_file",
    "tracer": "worker/dependencies/access_tracer",
    "passes": "worker/passes worker/export/pass_process",
    "no-op, watch": "cache/noop_snapshot api/watch",
    "browser": "report/pages/browser_data",
    "measurements": "worker/verify/measurement runtimes/drivers/load_figures",
    "mapped weights": "worker/model/mapped_weights",
    "explain": "manifest/cell_settings",
    "github": "cli/output/github",
    "sandbox": "processes/landlock",
    "commands of packages": "cli/plugin",
}
#: Identifiers whose modules are counted.
IDENTIFIERS = ("rollout", "metric", "passes", "toolchain")


def list_modules() -> dict[str, str]:
    """Return the source of each module by its name, such as `gate.finding`."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths)
    names = (name.removesuffix("__init__").rstrip("/").replace("/", ".") for name in names)
    return {name: path.read_text("utf-8") for name, path in zip(names, paths, strict=True)}


def find_group(module: str) -> str:
    """Return the optional group of a module, or "" if it is on the way."""
    path = module.replace(".", "/")
    for group, patterns in OPTIONAL.items():
        if any(fnmatchcase(path, each) or path == each[:-2] for each in patterns.split()):
            return group
    return ""


def list_crossings() -> set[tuple[str, str]]:
    """Return each module on the way with an optional module that it imports, also lazily."""
    modules = list_modules()
    return {
        (module, imported)
        for module, source in modules.items()
        if not find_group(module)
        for imported in _list_imports(source, modules.keys())
        if find_group(imported)
    }


def _list_imports(source: str, known: object) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exporter"):
            base = (node.module or "").removeprefix("exporter").lstrip(".")
            inner = [f"{base}.{each.name}".lstrip(".") for each in node.names]
            yield from (name if name in known else base for name in inner)  # type: ignore[operator]


def measure() -> dict[str, int]:
    """Return the figures by their names."""
    modules = list_modules()
    way = {name: source for name, source in modules.items() if not find_group(name)}
    uses = defaultdict[str, set[str]](set)
    for name, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            words = {getattr(node, key, None) for key in ("id", "attr", "arg", "name", "value")}
            for word in words & {*IDENTIFIERS}:
                uses[word].add(name)
    return {
        "statements from the way to optional things": len(list_crossings()),
        "modules with such a statement": len({module for module, _ in list_crossings()}),
        "lines of the way": sum(len(source.splitlines()) for source in way.values()),
        "modules of the way": len(way),
        "lines of the package": sum(len(source.splitlines()) for source in modules.values()),
        **{f"modules with `{word}`": len(uses[word]) for word in IDENTIFIERS},
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{value:7,}  {name}")
