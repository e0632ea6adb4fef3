"""The comparison of a branch with a revision: its baseline, its policy and its promises."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporter.cache.states import hash_source
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import open_regular_file
from exporter.core.git import Commit, Git
from exporter.core.revision import Checkout, check_out
from exporter.core.toml_table import SETTINGS_FILE
from exporter.gate.accepted_contract import (
    DEFINING_KEYS,
    WEIGHTS_FILE,
    describe_states,
    find_state_changes,
    format_change,
    make_finding,
)
from exporter.gate.approvals import (
    CODEOWNERS,
    CodeOwners,
    Reviewers,
    Reviews,
    select_reviewers,
)
from exporter.gate.baseline_comparison import compare_results, list_accepted, strip_figures
from exporter.gate.finding import ACCEPTED_HERE, GateFinding
from exporter.gate.revision_promises import ContractHashes, find_contract_changes
from exporter.manifest import (
    FindingKind,
    Gate,
    Manifest,
    ModelSpec,
    find_renames,
    load_project,
    load_settings,
)
from exporter.manifest.loader import list_manifests
from exporter.manifest.resolved.policy import ACTIONS
from exporter.manifest.rules.python_code import hash_code
from exporter.manifest.syntax.python_source import find_module_file
from exporter.manifest.syntax.table import list_functions
from exporter.records.baseline import (
    FOLDER,
    AcceptedModel,
    Baseline,
    CellOutcome,
    extract_outcome,
    read_baseline,
    rename_models,
)
from exporter.records.record import CellId, Record, RunRecord
from exporter.report.reports_folder import ReportPaths

#: The form of a pointer of Git LFS, and the bytes that contain it.
_LFS_VERSION = b"version https://git-lfs"
_LFS_POINTER = re.compile(rb"oid sha256:([0-9a-f]{64})")
_POINTER_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectState:
    """The manifests and the baseline of a project at one revision."""

    manifest: Manifest
    """Of a revision: with the policy at its tip, which is in force at the merge."""
    baseline: Baseline
    former_gate: Gate | None = None
    """Of a revision: the policy of the common commit, with which the branch began; None if it is
    that of the manifest."""
    hashes: ContractHashes = field(default_factory=dict)
    """The hashes of the data files, by model and by path from the root."""
    states: Mapping[str, AcceptedModel] = field(default_factory=dict)
    """The current states of the models of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRevision:
    """A revision of git with the differences of the work tree."""

    state: ProjectState
    name: str
    commit: Commit
    findings: tuple[GateFinding, ...]
    accepted: tuple[GateFinding, ...]
    """The differences between its baseline and that of the branch."""
    reviewers: dict[str, str]
    """The next step for a loss with a reason, by model."""
    forgotten: dict[str, str]
    """The files of the baseline from which the branch deleted removed cells, by model."""


def compare(
    manifest: Manifest,
    run: RunRecord,
    promised: Collection[CellId],
    environment: Mapping[str, str],
    against: str,
    reviews: Reviews | None = None,
) -> ComparedRevision:
    """Compare the results of the work tree with the last common commit with a revision.

    `reviews` are those of the pull request, if the host was asked.

    Raises:
        ExporterError: UNREADABLE if the manifests or the baseline of the revision cannot be read.
            MANIFEST and ENVIRONMENT as `check_out`.
    """
    root, path = Path(manifest.project.root), ReportPaths(manifest.project).baseline
    git = Git(root, environment, "--against")
    with check_out(root, against, environment) as checkout:
        state = _read_state(checkout, root, adds_baseline=path.exists())
        state = _replace_policy(state, checkout, git, against)
    state = _rename_models(state, manifest)
    reports = f"{state.manifest.project.reports}/{FOLDER}"
    folder = git.run("rev-parse", "--show-prefix") + reports
    reviewers = _read_reviewers(git, against, reviews)
    present = read_baseline(path) if path.exists() else Baseline()
    present = rename_models(present, find_renames(manifest, present.models.keys()))
    former_ids = state.manifest.project.gate.former_ids
    approvals = Approvals(reviewers=reviewers, folder=folder, former_ids=former_ids)
    branch = ProjectState(
        manifest=manifest,
        baseline=present,
        hashes=_hash_contract(manifest, root),
        states=describe_states(manifest, run, present),
    )
    return ComparedRevision(
        state=state,
        name=checkout.name,
        commit=checkout.commit,
        findings=compare_with_revision(state, branch, run, promised, approvals),
        accepted=list_accepted(state.baseline, present),
        reviewers={
            model_id: reviewers.describe(approvals.list_files([model_id]))
            for model_id in state.baseline.models.keys() | manifest.by_id.keys()
        },
        forgotten={
            cell.model: f"{reports}/{former_ids.get(cell.model, cell.model)}.json"
            for cell in state.baseline.by_cell().keys() - {*present.by_cell(), *promised}
            if cell not in present.dropped
        },
    )


def _read_reviewers(git: Git, revision: str, reviews: Reviews | None) -> Reviewers:
    """Return the approvals of the current commit, and the owners at the tip of the revision.

    A job of a pull request has the merge of its head with the base: the head is the second parent.
    """
    commits = (git.try_run("rev-parse", "--verify", "--quiet", each) for each in ("HEAD", "HEAD^2"))
    host = reviews.host if reviews else "GitLab" if "GITLAB_CI" in git.environment else "GitHub"
    files = (git.try_run("show", f"{revision}:{name}") for name in CODEOWNERS[host])
    text = next((each for each in files if each is not None), None)
    owners = None if text is None else CodeOwners(text, is_of_gitlab=host == "GitLab")
    return select_reviewers(reviews, [each for each in commits if each], owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """The approvals of a branch, and the folder of the baseline whose owners count."""

    reviewers: Reviewers = field(default_factory=Reviewers)
    folder: str = f"reports/{FOLDER}"
    """From the top of the repository."""
    former_ids: Mapping[str, str] = field(default_factory=dict)
    """Of renamed models, by ID: the owners of both files count."""

    def find(self, cells: Collection[CellId]) -> str:
        """Return who approves a loss: `@ann and @bob`, or "" if an approval is missing."""
        files = self.list_files(dict.fromkeys(cell.model for cell in cells))
        return " and ".join(f"@{each}" for each in self.reviewers.find_approvers(files))

    def list_files(self, model_ids: Collection[str]) -> list[str]:
        """Return the files whose owners must approve a loss of the models."""
        files = dict.fromkeys(
            (*model_ids, *(self.former_ids.get(each, each) for each in model_ids))
        )
        return [f"{self.folder}/{each}.json" for each in files]


def compare_with_revision(
    revision: ProjectState,
    branch: ProjectState,
    run: RunRecord,
    promised: Collection[CellId],
    approvals: Approvals | None = None,
) -> tuple[GateFinding, ...]:
    """Compare the results and the manifests of a branch with a revision; see `compare_results`.

    Any change of a contract that the branch's own baseline lacks is a finding, too.
    """
    gate = revision.manifest.project.gate
    findings = compare_results(revision.baseline, run, promised, gate)
    reported = {finding.cell for finding in findings}
    contract_changes = find_contract_changes(
        revision.manifest, branch.manifest, revision.hashes, branch.hashes, revision.former_gate
    )
    # Their contents are compared if git has them; the baseline knows those that git ignores.
    retrained = {each.cell for each in contract_changes if each.before.startswith(WEIGHTS_FILE)}
    relaxed_states = find_state_changes(revision.baseline, branch.states, promised, gate)
    changed_states = [*find_state_changes(branch.baseline, branch.states, promised, gate)]
    shown = {(each.cell, each.before, each.after) for each in changed_states}
    # If a removed cell was accepted, it has the finding `missing` already.
    relaxed = (
        finding
        for finding in (
            *contract_changes,
            *_find_unread_entries(revision, promised),
            *(
                each
                for each in relaxed_states
                if each.kind is FindingKind.RELAXED
                or (each.kind is FindingKind.REDEFINED and each.cell not in retrained)
            ),
            *(
                each
                for each in _find_changed_defaults(revision, run, promised)
                if (each.cell, each.before, each.after) not in shown
            ),
        )
        if finding.cell in promised or finding.cell not in reported
    )
    acceptance = _BranchAcceptance(
        before=revision.baseline.by_cell(),
        after=branch.baseline.by_cell(),
        dropped={
            cell: reason
            for cell, reason in branch.baseline.dropped.items()
            if revision.baseline.dropped.get(cell) != reason
        },
        records=run.by_cell(),
        approvals=approvals or Approvals(),
        promised=frozenset(promised),
    )
    judged = [
        *(each for each in changed_states if each.kind is FindingKind.CONTRACT),
        *_find_edited_outcomes(revision, branch, run, promised),
        *(_apply_acceptance(each, acceptance, revision.manifest) for each in (*findings, *relaxed)),
    ]
    return tuple(sorted((each for each in judged if each), key=lambda each: each.sort_key))


def _find_edited_outcomes(
    revision: ProjectState, branch: ProjectState, run: RunRecord, promised: Collection[CellId]
) -> Iterator[GateFinding]:
    """Yield each cell whose outcome is as before, and whose baseline on the branch has another one.

    After the merge, that outcome would be the accepted one, and a loss that has it no finding.
    """
    before, after = revision.baseline.by_cell(), branch.baseline.by_cell()
    gate = revision.manifest.project.gate
    for cell, record in run.by_cell().items():
        if cell not in before or cell not in promised:
            continue
        old, new, accepted = before[cell], extract_outcome(record), after.get(cell)
        same = (strip_figures(old), strip_figures(new))
        if str(old) == str(new) and (accepted is None or strip_figures(accepted) not in same):
            change = format_change("outcome in the baseline", accepted and str(accepted), str(new))
            policy = gate.find_policy(cell.model)
            yield make_finding(FindingKind.CONTRACT, cell, change, policy)


def _find_changed_defaults(
    revision: ProjectState, run: RunRecord, promised: Collection[CellId]
) -> Iterator[GateFinding]:
    """Yield each promise of the revision that another release of a package with defaults changed.

    The package is installed in one release only, so entries of both sides have the same defaults.
    """
    if revision.manifest.project.extends:
        states = describe_states(revision.manifest, run, revision.baseline)
        gate = revision.manifest.project.gate
        for each in find_state_changes(revision.baseline, states, promised, gate):
            if each.kind is FindingKind.CONTRACT:
                yield each


def _find_unread_entries(
    revision: ProjectState, promised: Collection[CellId]
) -> Iterator[GateFinding]:
    """Yield the cells that the revision accepted although it has no entry for them.

    Their promises at the revision are unknown. The entry may be in a submodule or behind a link.
    """
    known = {spec.id for spec in revision.manifest.models}
    for cell in revision.baseline.by_cell():
        if cell.model in known or cell not in promised:
            continue
        policy = revision.manifest.project.gate.find_policy(cell.model)
        action = policy.find_action(FindingKind.RELAXED)
        if action != "ignore":
            yield GateFinding(
                kind=FindingKind.RELAXED,
                cell=cell,
                before="no entry at the revision",
                after="promised",
                message="its promises at the revision cannot be read; keep manifests in the "
                "repository, not in a link out of it or in a submodule that is not fetched",
                action=action,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BranchAcceptance:
    """The outcomes that the branch's own baseline accepts."""

    before: Mapping[CellId, CellOutcome]
    """The baseline of the revision."""
    after: Mapping[CellId, CellOutcome]
    """The baseline of the branch."""
    dropped: Mapping[CellId, str]
    """The reasons for removed cells that the revision does not have."""
    records: Mapping[CellId, Record]
    approvals: Approvals
    promised: frozenset[CellId]

    def is_accepted(self, cell: CellId) -> bool:
        """Return whether the branch's baseline contains the current outcome."""
        accepted, record = self.after.get(cell), self.records.get(cell)
        if accepted is None or record is None:
            return False
        return strip_figures(accepted) == strip_figures(extract_outcome(record))

    def find_reason(self, cell: CellId) -> str:
        """Return why the branch accepts the cell, or "" if there is none."""
        # The reason for a removed cell accepts no outcome of one that is promised.
        if cell in self.dropped and cell not in self.after and cell not in self.promised:
            return self.dropped[cell]
        before, after = self.before.get(cell), self.after.get(cell)
        if after is None or not self.is_accepted(cell):
            return ""
        # A reason that the revision contains too belongs to an older change.
        return after.reason if before is None or before.reason != after.reason else ""


def _apply_acceptance(
    finding: GateFinding, acceptance: _BranchAcceptance, manifest: Manifest
) -> GateFinding | None:
    """Return the finding with its final action, or None if the branch settles it."""
    if finding.is_improvement and acceptance.is_accepted(finding.cell):
        return None
    reasons = [acceptance.find_reason(cell) for cell in finding.cells]
    reason = reasons[0] if all(reasons) else ""
    if not reason:
        return finding
    models = dict.fromkeys(cell.model for cell in finding.cells)
    policies = [manifest.project.gate.find_policy(model_id) for model_id in models]
    actions = [each.find_action(FindingKind.ACCEPTED_HERE) for each in policies]
    approver = ""
    if all(each.needs_approval for each in policies):
        approver = acceptance.approvals.find(finding.cells)
    message = ", approved by ".join(filter(None, (f"{ACCEPTED_HERE}{reason}", approver)))
    message += f" ({finding.message})" if finding.message else ""
    if approver:
        return replace(finding, message=message, action="warn")
    match min(actions, key=ACTIONS.index):
        case "block":
            return replace(finding, message=message)
        case "warn":
            return replace(finding, message=message, action="warn")
        case "ignore":
            return None


def _read_state(checkout: Checkout, root: Path, *, adds_baseline: bool) -> ProjectState:
    """Read the manifests and the baseline of a revision.

    Every entry must be valid, because an unknown promise could be weakened without a finding. A
    revision without manifests, such as that of the first pull request, promises nothing. One
    without a baseline has accepted nothing, so each cell of the first baseline is new.

    `adds_baseline`: Whether the branch has a baseline.
    """
    try:
        project = load_settings(checkout.root)
        folders = [checkout.root / each for each in project.manifests]
        is_empty = not checkout.omitted and not any(map(list_manifests, folders))
        manifest = (
            Manifest(project=project, models=())
            if is_empty
            else load_project(checkout.root, fallback_root=root)
        )
    except ExporterError as error:
        message = (
            f"{checkout.name}: the manifests cannot be read by this version; compare with a later "
            "revision"
        )
        problems = [Problem(message=f"{checkout.name}: {problem}") for problem in error.problems]
        problems += [
            Problem(
                message=f"{checkout.name}: {link}: is a link out of the repository, so its content "
                "at the revision is unknown; move the file into the repository"
            )
            for link in checkout.omitted
        ]
        raise ExporterError(ExitCode.UNREADABLE, [*problems, Problem(message=message)]) from error
    path = checkout.root / project.reports / FOLDER
    name = path.relative_to(checkout.root).as_posix()
    if path.exists():
        baseline = read_baseline(path, f"{checkout.name}: {name}")
    elif is_empty or adds_baseline:
        baseline = Baseline()
    else:
        message = f"{checkout.name}: has no {name}; accept its results first"
        raise ExporterError(ExitCode.RED, message)
    return ProjectState(manifest=manifest, baseline=baseline, hashes=_hash_contract(manifest, root))


def _replace_policy(state: ProjectState, checkout: Checkout, git: Git, tip: str) -> ProjectState:
    """Return the state with the policy of the tip of the revision.

    Otherwise a branch from a commit with a weaker policy could use it, and a policy that a
    maintainer commits for a branch would have no effect.
    """
    text = git.try_run("show", f"{tip}:./{SETTINGS_FILE}")
    path = checkout.root / SETTINGS_FILE
    if text is None or path.is_symlink():
        return state
    path.write_text(text, encoding="utf-8")
    try:
        gate = load_settings(checkout.root).gate
    except ExporterError as error:
        problems = [Problem(message=f"{tip}: {problem}") for problem in error.problems]
        raise ExporterError(ExitCode.UNREADABLE, problems) from error
    project = state.manifest.project
    manifest = Manifest.from_fields(
        state.manifest, project=project.model_copy(update={"gate": gate})
    )
    return replace(state, manifest=manifest, former_gate=project.gate)


def _rename_models(state: ProjectState, branch: Manifest) -> ProjectState:
    """Return the state of a revision with the IDs that the entries of the branch have now.

    The policy of a renamed model stays that of its former ID, so a rename weakens none.
    """
    manifest = state.manifest
    known = state.baseline.models.keys() | manifest.by_id.keys()
    renames = find_renames(branch, known)
    if not renames:
        return state
    former_ids = {new: old for old, new in renames.items()}
    gate, former_gate = (
        each and each.model_copy(update={"former_ids": former_ids})
        for each in (manifest.project.gate, state.former_gate)
    )
    models = [
        each.model_copy(update={"id": renames.get(each.id, each.id)}) for each in manifest.models
    ]
    project = manifest.project.model_copy(update={"gate": gate})
    update = {"project": project, "models": tuple(models)}
    return replace(
        state,
        # A copy of the object has its index of the former IDs.
        manifest=Manifest.from_fields(manifest, **update),
        baseline=rename_models(state.baseline, renames),
        former_gate=former_gate,
        hashes={renames.get(name, name): each for name, each in state.hashes.items()},
    )


def _hash_contract(manifest: Manifest, fallback_root: Path) -> ContractHashes:
    """Return the hashes of the data files and functions of all entries, without missing ones."""
    root = Path(manifest.project.root)
    hashes: dict[str, dict[tuple[FindingKind, str], str]] = {}
    for spec in manifest.models:
        digests = hashes.setdefault(spec.id, {})
        files = list(spec.data_files)
        folder = (root / spec.manifest).parent
        weights = os.path.relpath(folder / spec.weights, root) if spec.weights else ""
        for pattern in (*spec.depends, *(each.ort_library for each in spec.custom_ops)):
            paths = folder.glob(pattern) if pattern and ":" not in pattern else ()
            files += [os.path.relpath(path, root) for path in paths if path.is_file()]
        for file in files:
            name = WEIGHTS_FILE if file == weights else "content of "
            digests[FindingKind.REDEFINED, f"{name}{file}"] = _hash_content(root / file)
        for kind, text in _list_functions(spec):
            digests[kind, f"code of {text}"] = _hash_code(spec, text, root, fallback_root)
    return {
        model: {key: digest for key, digest in digests.items() if digest}
        for model, digests in hashes.items()
    }


def _list_functions(spec: ModelSpec) -> Iterator[tuple[FindingKind, str]]:
    """Yield each function that the contract names, with the kind of a finding about its code."""
    for key in ModelSpec.model_fields:
        if value := getattr(spec, key):
            kind = FindingKind.REDEFINED if key in DEFINING_KEYS else FindingKind.RELAXED
            yield from ((kind, text) for text in list_functions(value) if ":" in text)


def _hash_code(spec: ModelSpec, text: str, root: Path, fallback_root: Path) -> str:
    """Return the hash of a function's code, or "" if the project does not have it."""
    location, _, name = text.rpartition(":")
    folder = (root / spec.manifest).parent
    file: Path | None = Path(os.path.normpath(folder / location))
    if not location.endswith(".py"):
        file = find_module_file(location, (str(folder), str(root)))
    return hash_code(root, file, name, fallback_root) if file else ""


def _hash_content(path: Path) -> str:
    """Return the hash of a file; that of its content if git stores a pointer of Git LFS."""
    try:
        with open_regular_file(path, may_be_link=True) as file:
            head = file.read(_POINTER_BYTES)
    except OSError:
        return ""
    pointer = _LFS_POINTER.search(head) if head.startswith(_LFS_VERSION) else None
    return pointer[1].decode() if pointer else hash_source(path)
