"""Comparison of results, baseline and manifests, which decides about a merge."""

from exporter.gate.baseline_comparison import (
    ProjectState,
    accept_all,
    accept_some,
    compare_baselines,
    compare_results,
    compare_with_revision,
)
from exporter.gate.contract_changes import ContractHashes, find_contract_changes
from exporter.gate.finding import (
    CAUSED_KINDS,
    GROWTH_KINDS,
    NO_RESULT,
    NOT_ACCEPTED,
    Cause,
    ChangedLines,
    FindingKind,
    GateFinding,
    PolicySetting,
    SourceChange,
    find_cause,
    select_blocking,
)
from exporter.gate.upgrade_comparison import FileChange, UpgradeComparison, compare_upgrade

__all__ = [
    "CAUSED_KINDS",
    "GROWTH_KINDS",
    "NOT_ACCEPTED",
    "NO_RESULT",
    "Cause",
    "ChangedLines",
    "ContractHashes",
    "FileChange",
    "FindingKind",
    "GateFinding",
    "PolicySetting",
    "ProjectState",
    "SourceChange",
    "UpgradeComparison",
    "accept_all",
    "accept_some",
    "compare_baselines",
    "compare_results",
    "compare_upgrade",
    "compare_with_revision",
    "find_cause",
    "find_contract_changes",
    "select_blocking",
]
