"""The table `[tool.exporter.gate]`: policies of findings, and of models."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from exporter.core.errors import suggest_nearest
from exporter.core.toml_table import SETTINGS_KEYS
from exporter.manifest.resolved.policy import (
    ACTIONS,
    FINDINGS,
    Action,
    FindingKind,
    Gate,
    GatePolicy,
    ModelPolicy,
)
from exporter.manifest.rules.settings_file import SettingsFile
from exporter.manifest.schema.settings import ModelGateTable
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath, quote


def resolve_gate(settings_file: SettingsFile) -> Gate:
    """Return the policies with the lines of their keys; report findings that a table has twice."""
    table = settings_file.table.gate
    lines, policies = {"": settings_file.find_line(("gate",))}, []
    tables: dict[KeyPath, ModelGateTable] = {(): table}
    tables |= {("models", name): each for name, each in table.models.items()}
    for start, each in tables.items():
        prefix = ".".join(map(str, (*start, "")))
        actions: dict[FindingKind, Action] = {}
        for action in ACTIONS:
            for index, name in enumerate(getattr(each, action)):
                key_path = ("gate", *start, action, index)
                if known := actions.get(FINDINGS[name]):
                    message = f"{quote(name)} is also in `{known}`; remove one of the two"
                    settings_file.add_problem(key_path, message)
                actions.setdefault(FINDINGS[name], action)
                lines[f"{prefix}{name}"] = settings_file.find_line(key_path)
        for key in each.limits:
            lines[f"{prefix}limits.{key}"] = settings_file.find_line(
                ("gate", *start, "limits", key)
            )
        limits = {FINDINGS[name]: limit for name, limit in each.limits.items()}
        policies.append(GatePolicy(actions=actions, limits=limits))
    return Gate(
        policy=policies[0],
        models=tuple(
            ModelPolicy.from_fields(policy, models=name)
            for name, policy in zip(table.models, policies[1:], strict=True)
        ),
        lines={key: line for key, line in lines.items() if line},
    )


def check_models(
    file: TomlFile, gate: Gate, models: Collection[str], report: ProblemCollector
) -> None:
    """Report policies that match no model, which are mistakes."""
    for policy in gate.models:
        if not any(fnmatchcase(model_id, policy.models) for model_id in models):
            message = f"no model matches{suggest_nearest(policy.models, models)}"
            path = (*SETTINGS_KEYS, "gate", "models", policy.models)
            report.add(file.build_problem(path, message))
