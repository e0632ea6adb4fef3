"""The content of one published folder: copies, descriptions and hashes."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    CELL_LIMIT,
    PROJECT_LIMIT,
    TENSOR_LIMIT,
    copy_file,
    hash_file,
    read_regular_file,
    write_text,
)
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import join_lines, join_names
from exporter.jobs import is_weights_name
from exporter.manifest import Caller, Device, ModelSpec, Preprocess
from exporter.manifest.resolved.keys import DECODER, DECODER_TOKENS, Search
from exporter.manifest.syntax.releases import Release, find_first_release
from exporter.planning.plan import PlannedCell
from exporter.records.record import Artifact, CellId, Record, Status
from exporter.report.pages.templates import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that may be published."""

    model: str
    opset: int
    artifact: Artifact
    records: tuple[Record, ...]
    """The records of the selected devices; all pass, unless failing files are included."""

    @property
    def warning(self) -> str:
        """The failures of its devices, "" if all pass."""
        return _format_failures(self.records)


@dataclass(frozen=True, slots=True)
class Omission:
    """A file that is not published."""

    cell: CellId
    """Without a device, because the file serves all devices."""
    reason: str
    is_refused: bool = True
    """False if the manifest does not promise a correct file."""


def choose_file(
    planned: Sequence[PlannedCell],
    records: Mapping[CellId, Record],
    missing: Mapping[CellId, str],
    *,
    include_red: bool = False,
    include_initial: bool = False,
) -> Candidate | Omission:
    """Decide about the file of all cells of one opset of a model."""
    first = planned[0].cell
    model_id, file = first.model, first.model_copy(update={"device": DeviceName()})
    cells = [item.cell for item in planned if not item.skip]
    if not cells:
        return Omission(file, f"the manifest skips it: {planned[0].skip}", is_refused=False)
    for cell in cells:
        if cell not in records:
            reason = missing.get(cell, "it has not been exported yet")
            fix = f"run `exporter export {model_id}`"
            return Omission(file, f"no result on {cell.device}: {reason}; {fix}")
    proofs = tuple(records[cell] for cell in cells)
    if (failures := _format_failures(proofs)) and not include_red:
        is_expected = all(item.status in (Status.PASS, Status.XFAIL) for item in proofs)
        return Omission(file, failures, is_refused=not is_expected)
    artifacts = {item.artifact.sha256: item.artifact for item in proofs if item.artifact}
    if not artifacts:
        return Omission(file, "; ".join(filter(None, ("there is no file", failures))))
    if len(artifacts) > 1:
        reason = f"its devices were proved on different files; run `exporter export {model_id}`"
        return Omission(file, reason)
    initial = next((each.initial_weights for each in proofs if each.initial_weights), "")
    if initial and not include_initial:
        return Omission(file, f"it has {initial}; set `weights` in the entry, or add `--initial`")
    (artifact,) = artifacts.values()
    return Candidate(model=model_id, opset=first.opset, artifact=artifact, records=proofs)


def _format_failures(records: Iterable[Record]) -> str:
    return "; ".join(
        join_lines(f"{record.outcome} on {record.cell.device}: {record.message}").rstrip(": ")
        for record in records
        if record.status is not Status.PASS
    )


MODEL = "model.onnx"
CARD = "README.md"
CONTRACT = "contract.json"
#: The program that runs a chain.
RUNNER = "run.py"
#: The program with the loop of a decoder.
GENERATOR = "generate.py"
#: The texts that a person may complete.
_TEXTS_FOR_PEOPLE = (CARD, GENERATOR, RUNNER)
_OLD_FORMAT = re.compile(rb'\s*\{\s*"(format": 1\b|tool"|model")')
_TOOL: Literal["onnx-exporter-matrix"] = "onnx-exporter-matrix"
#: The README of a destination, as release 1.0 wrote it.
_FIRST_CARD = re.compile(rb"# Published models\n\nEach folder is .*\n.*\n\n(\|.*\n)*")
#: The file that identifies a folder written by `publish`.
MARKER = "exporter.json"
SUMS = "SHA256SUMS"
#: The configuration of a decoder for ONNX Runtime GenAI.
GENAI_CONFIG = "genai_config.json"
#: The signature that a publisher may add; it covers all other files.
SIGNATURE = "model.sig"
#: The first data set for numpy.
EXAMPLE = "example.npz"
#: The folder with the same as raw tensors.
RAW = "example"
_DIGEST_LENGTH = 64  # hex digits of SHA-256
#: The files with the proof. One without a hash is damage, not a file of somebody else.
_PROOF = (MODEL, CONTRACT, MARKER, "reference.json", "weights-*", "link-*", "test_data_set_*/*.pb")
#: Files that ONNX limits.
_PROTO_SUFFIXES = (".onnx", ".pb")
#: The files of `save_pretrained` that prepare inputs, or name tokens.
_TEXTS = "tokenizer|vocab|merges|special_tokens_map|chat_template"
_ASSET = re.compile(rf"(\w+_)?config\.json|({_TEXTS})\.\w+|\w+\.model")


class Allowance(FrozenModel):
    """The tolerance of one output: `atol + rtol * |expected|` from PyTorch's output."""

    output: str
    atol: float
    rtol: float
    outside: float = 0.0
    """The share of elements that may exceed the tolerance."""
    compared_at: str = ""
    """The positions that are compared, such as `mask = 1`; "" for all."""
    comparator: str = ""
    """The comparator in place of the tolerance, such as `sqnr = 40`; "" if there is none."""


class DataSet(FrozenModel):
    """One folder `test_data_set_<n>`."""

    folder: str
    name: str
    """`declared`, `batch=7`, or the name of a case."""
    kind: str
    axes: dict[str, int]


class ExampleTensor(FrozenModel):
    """A tensor of `example`: its raw elements in the order of C, with the lowest byte first."""

    name: str
    file: str
    dtype: str
    shape: Items[int]


class PublishedLink(FrozenModel):
    """A file that a chain runs, with the values that it gets and gives by the names in the file."""

    id: str
    file: str
    inputs: dict[str, str]
    outputs: dict[str, str]


class PublishTarget(FrozenModel):
    """One file to publish."""

    opset: int
    devices: Items[Device]
    """The devices on which it was proved."""
    folder: Path
    """The folder with its `model.onnx`, absolute."""
    has_ties: bool = False
    """Whether the file selects other indices of equal values than PyTorch."""
    commit: str = ""
    """The commit of the sources, for the file; see `Publication`."""
    previous: Path | None = None
    """The published folder that it replaces, if there is one."""


class TargetResult(FrozenModel):
    """The result for one target."""

    problems: Items[str] = ()
    """The reasons against its publication."""
    notes: Items[str] = ()
    numbers: Items[str] = ()
    """The differences of the outputs from those of the file that it replaces."""
    sets: Items[DataSet] = ()
    example: Items[ExampleTensor] = ()
    links: Items[PublishedLink] = ()
    allowed: Items[Allowance] = ()
    sources: dict[str, str] = Field(default_factory=dict)
    """The published file with the content of each file of a sample, by its name in an export."""


class Replacement(FrozenModel):
    """A published folder in whose place another one was written."""

    sha256: str
    """The hash of its file."""
    version: str = ""
    commit: str = ""
    changes: Items[str] = ()
    """What is different for a user of the file."""


class Publication(FrozenModel):
    """`exporter.json`: the published file and its proof."""

    format: Literal[2] = 2
    tool: Literal["onnx-exporter-matrix"] = _TOOL
    model: str
    opset: int
    is_green: bool
    """True if every promise was proved on every device in `records`."""
    warning: str = ""
    """The failures, "" if there are none."""
    sha256: str
    """The SHA-256 of `model.onnx`."""
    exported: str = ""
    """The hash before the entry's description was appended: that of the file of the export."""
    commit: str = ""
    """The last commit that changed a source of the model; "" if git does not have all of them."""
    repository: str = ""
    """The address of the repository with that commit; "" if git has none."""
    external_data: Items[str] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    """The texts in the file for programs."""
    meanings: dict[str, str] = Field(default_factory=dict)
    """A sentence about an input or an output."""
    preprocess: dict[str, Preprocess] = Field(default_factory=dict)
    """How a raw sample becomes an input."""
    labels: dict[str, Items[str]] = Field(default_factory=dict)
    """The names of the classes of an output."""
    callers: Items[str] = ()
    """The programs that run the file and have PyTorch's results, from the root of the project."""
    example: Items[ExampleTensor] = ()
    """The raw tensors of the first data set, for programs without Python."""
    links: Items[PublishedLink] = ()
    """The files that run one after the other, if the model is a chain."""
    replaces: Replacement | None = None
    """The last folder with other content in the same place, as far as it was there."""
    tools: dict[str, str]
    """The versions of the tools that built and proved it."""
    data_sets: Items[DataSet]
    allowed: Items[Allowance]
    """The tolerance of each output on the test data."""
    records: Annotated[Items[Record], Field(min_length=1)]
    """A record of each device: checks with figures, route, sources with hashes."""
    sources: dict[str, str]
    """The published file with the content of each file of a sample, by its name in an export."""

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Return that of a published folder.

        Raises:
            OSError, ValueError: It cannot be read, or is of a later version.
        """
        content = read_regular_file(folder / MARKER, CELL_LIMIT)
        if _OLD_FORMAT.match(content):
            raise ValueError("of a version before 1.0; publish the model again")
        return cls.read(content)

    @property
    def release(self) -> Release | None:
        """The first release of ONNX Runtime that loads the file; None if no known one does."""
        artifact = self.records[0].artifact
        return find_first_release(self.opset, artifact.ir_version) if artifact else None


def copy_model(candidate: Candidate, built: Path, folder: Path) -> None:
    """Copy the file and its external data and compare the hashes of the copies.

    Raises:
        ExporterError: UNREADABLE if a copy is not the proved file.
    """
    names = {f"{candidate.opset}.onnx": MODEL}
    names |= {name: name for name in candidate.artifact.external_data}
    for source, target in names.items():
        path = built / source
        if PurePosixPath(source).name != source or path.is_symlink() or not path.is_file():
            message = f"{source}: is not a file of the model's folder; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        # No hard links, because onnx refuses external data with two names.
        copy_file(path, folder / target)
        digest = hash_file(folder / target)
        is_proved = (
            digest == candidate.artifact.sha256
            if target == MODEL
            else is_weights_name(target, digest)
        )
        if not is_proved:
            message = f"{candidate.model}/{source}: is not the file that was proved"
            raise ExporterError(ExitCode.UNREADABLE, message)


def copy_assets(candidate: Candidate, spec: ModelSpec, root: Path, folder: Path) -> None:
    """Copy the configuration and the tokenizer of a model that transformers read from a folder.

    Raises:
        ExporterError: UNREADABLE if a file is a link out of the project, if two folders have
            different files of a name, or if the tokenizer is none or has more tokens than the
            logits have values.
        OSError: A file cannot be read.
    """
    files = (root / each.file for each in candidate.records[0].sources if "*" not in each.file)
    for config in (file for file in files if file.name == "config.json"):
        for path in config.parent.iterdir():
            if _ASSET.fullmatch(path.name) and path.is_file():
                _copy_asset(path, root, folder / path.name)
        size = next((out.shape[-1] for out in spec.outputs if out.name == "logits"), "")
        tokenizer = folder / "tokenizer.json"
        if isinstance(size, int) and tokenizer.is_file():
            name, fix = f"{config.parent.name}/{tokenizer.name}", "copy the tokenizer of this model"
            try:
                table = json.loads(read_regular_file(tokenizer, PROJECT_LIMIT))
                words = table["model"]["vocab"]
                numbers = words.values() if isinstance(words, dict) else range(len(words))
                added = (token["id"] for token in table.get("added_tokens", ()))
                count = 1 + max([*numbers, *added])
            except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                message = f"{name}: is no tokenizer: {type(error).__name__}: {error}; {fix}"
                raise ExporterError(ExitCode.UNREADABLE, message) from error
            if count > size:
                message = f"{name}: has a token {count - 1}, the logits have {size} values; {fix}"
                raise ExporterError(ExitCode.UNREADABLE, message)


def _copy_asset(path: Path, root: Path, target: Path) -> None:
    name, source = f"{path.parent.name}/{path.name}", path.resolve()
    # In a hub's cache, a file of `snapshots/REVISION` is a link to one of `blobs`.
    is_cached = source.parent == (path.parent.parent.parent / "blobs").resolve()
    if path.is_symlink() and not is_cached and not source.is_relative_to(root.resolve()):
        message = f"{name}: is a symlink out of the project; copy the file"
        raise ExporterError(ExitCode.UNREADABLE, message)
    if target.exists():
        if hash_file(target) != hash_file(source):
            message = f"{name}: another folder of the model has a file of this name; rename one"
            raise ExporterError(ExitCode.UNREADABLE, message)
        return
    copy_file(source, target)


def copy_preprocessing(spec: ModelSpec, root: Path, folder: Path) -> None:
    """Copy the file of each function of `preprocess`, which a user of the file has to call.

    Raises:
        ExporterError: UNREADABLE if two files have one name, or a file that `publish` writes has.
        OSError: A file cannot be read.
    """
    for item in spec.inputs:
        if item.preprocess and item.preprocess.function:
            path = (root / spec.manifest).parent / item.preprocess.function.rpartition(":")[0]
            if path.name in _TEXTS_FOR_PEOPLE:
                message = f"{path.name}: `publish` writes a file of this name; rename it"
                raise ExporterError(ExitCode.UNREADABLE, message)
            _copy_asset(path, root, folder / path.name)


def _name_caller(spec: ModelSpec, caller: Caller) -> str:
    """Return the name of a program with its path from the root of the project."""
    folder = posixpath.dirname(spec.manifest)
    path = caller.call or caller.command[0]
    if "/" in path or caller.call:
        path = posixpath.normpath(posixpath.join(folder, path))
    return " ".join((path, *caller.command[1:]))


def describe_use(spec: ModelSpec) -> dict[str, Any]:
    """Return the fields of `exporter.json` for the person who runs the file, from the contract."""
    meanings = {each.name: each.meaning for each in spec.inputs if each.meaning}
    meanings |= {each.name: each.meaning for each in spec.outputs if each.meaning}
    return {
        "metadata": spec.metadata,
        "meanings": meanings,
        "preprocess": {each.name: each.preprocess for each in spec.inputs if each.preprocess},
        "labels": {each.name: each.labels for each in spec.outputs if each.labels},
    }


def summarize(
    candidate: Candidate,
    spec: ModelSpec,
    result: TargetResult,
    folder: Path,
    *,
    commit: str,
    repository: str,
    tools: dict[str, str],
) -> Publication:
    """Return `exporter.json`, without times: the same results give the same bytes."""
    records = tuple(
        record.model_copy(
            update={
                "checks": tuple(each.model_copy(update={"seconds": 0.0}) for each in record.checks),
                "seconds": {},
                "log": "",
            }
        )
        for record in candidate.records
    )
    return Publication.from_fields(
        candidate,
        is_green=not candidate.warning,
        sha256=hash_file(folder / MODEL),
        exported=candidate.artifact.sha256,
        commit=commit,
        repository=repository,
        **describe_use(spec),
        callers=tuple(_name_caller(spec, each) for each in spec.callers),
        example=result.example,
        links=result.links,
        external_data=candidate.artifact.external_data,
        tools=tools,
        data_sets=result.sets,
        allowed=result.allowed,
        records=records,
        sources=result.sources,
    )


#: What a user of a file asks for, and a line that answers.
_ASKED = {"license": 'license = "Apache-2.0"', "owner": 'owner = "vision@example.com"'}
_PREPROCESS = 'preprocess = { layout = "NCHW", colour = "RGB", range = [0, 1] }'


def list_hints(specs: Iterable[ModelSpec]) -> Iterator[str]:
    """Yield a line for each key that a user of published files asks for, and their entries lack."""
    known = {spec.id: spec for spec in specs}
    for key, line in _ASKED.items():
        if names := [name for name, spec in known.items() if not getattr(spec, key)]:
            yield f"no {key}: {join_names(names, 3)}; add `{line}` to the entry or its defaults"
    inputs = [
        f"{name}.{item.name}"
        for name, spec in known.items()
        for item in spec.inputs
        if "float" in item.dtype and not item.preprocess and not spec.generate and not spec.rollout
    ]
    if inputs:
        example = f'such as `{_PREPROCESS}` or `{{ function = "prepare.py:load" }}`'
        yield f"no preprocess: {join_names(inputs, 3)}; tell how a sample becomes it, {example}"


def has_generator(spec: ModelSpec) -> bool:
    """Return whether `generate.py` runs the loop: that of a decoder, alone or with its encoder."""
    is_pair = any(item.name == DECODER_TOKENS for item in spec.inputs)
    is_decoder = spec.generate is not None and spec.generate.part == DECODER
    return spec.rollout is not None and spec.generate is not None and (is_pair or is_decoder)


def list_missing_in_genai(spec: ModelSpec) -> tuple[str, ...]:
    """Return what ONNX Runtime GenAI lacks for a decoder with the tokens of `generate`."""
    is_pair = any(i.name == DECODER_TOKENS or ".encoder." in i.name for i in spec.inputs)
    is_single = any(item.name == "input_ids" and item.shape[1] == 1 for item in spec.inputs)
    search = spec.generate.search if spec.generate else Search()
    names = ("suppress_tokens", "begin_suppress_tokens")
    settings = (name for name in names if getattr(search, name))
    loop = ("proved loop for a file that takes one token",) if is_single else ()
    return (*(("the cache of an encoder",) if is_pair else ()), *loop, *settings)


def read_contract(folder: Path) -> ModelSpec:
    """Return the contract of a published folder.

    Raises:
        OSError, ValueError: It cannot be read, or is of a later version.
    """
    return ModelSpec.read(read_regular_file(folder / CONTRACT, CELL_LIMIT))


def write_catalog(destination: Path, templates: Path) -> str:
    """Write `README.md` and `index.json`, which list all published folders of a destination.

    Returns:
        The reason if files of these names exist that this function did not write, or "".
    """
    index, card = destination / "index.json", destination / CARD
    files = []
    for marker in destination.glob(f"*/*/{MARKER}"):
        with suppress(OSError, ValueError):  # `exporter verify` reports it
            files.append((Publication.from_folder(marker.parent), read_contract(marker.parent)))
    files.sort(key=lambda pair: (pair[0].model, pair[0].opset))
    text = render("catalog.md", templates, files=files)
    table = _read_catalog(index)
    is_ours = {
        index: table is not None,
        card: table is not None and _is_card(card, {table.get("readme", ""), _hash_text(text)}),
    }
    for path, is_list in is_ours.items():
        if os.path.lexists(path) and not is_list:
            return f"{path.name}: is no list of `exporter publish`; move it away to get one"
    write_text(card, text)  # a killed run leaves the text that the next one writes
    write_text(index, render("catalog.json", templates, files=files, readme=_hash_text(text)))
    return ""


def _read_catalog(index: Path) -> dict[str, Any] | None:
    """Return the list of a destination, or None if the file is none or is missing."""
    try:
        table = json.loads(read_regular_file(index, PROJECT_LIMIT))
    except (OSError, RecursionError, ValueError):
        return None
    return table if isinstance(table, dict) and table.get("tool") == _TOOL else None


def _is_card(path: Path, digests: set[object]) -> bool:
    """Return whether a README has one of the digests, or is one of release 1.0, which had none."""
    try:
        content = read_regular_file(path, PROJECT_LIMIT)
    except OSError:
        return False
    is_known = hashlib.sha256(content).hexdigest() in digests
    return is_known or ("" in digests and _FIRST_CARD.fullmatch(content) is not None)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def list_files(folder: Path) -> Iterator[str]:
    """Yield the path of each file and symlink in the folder, relative to it."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def list_special_files(folder: Path) -> tuple[str, ...]:
    """Return links, pipes and devices: opening one can wait or have effects."""
    modes = ((name, (folder / name).lstat().st_mode) for name in list_files(folder))
    return tuple(sorted(name for name, mode in modes if not stat.S_ISREG(mode)))


def list_unlisted_files(folder: Path) -> tuple[str, ...]:
    """Return the files that are not in the folder's list of hashes.

    Raises:
        OSError, ValueError: If there is no list, or an invalid one.
    """
    return tuple(sorted(set(list_files(folder)) - {SUMS, SIGNATURE, *_read_sums(folder)}))


def list_edited_texts(folder: Path) -> tuple[str, ...]:
    """Return the texts for people with another content than `publish` wrote.

    Raises:
        OSError, ValueError: If there is no list of hashes, or an invalid one.
    """
    sums = _read_sums(folder)
    texts = (name for name in _TEXTS_FOR_PEOPLE if (folder / name).is_file())
    return tuple(name for name in texts if hash_file(folder / name) != sums.get(name))


def find_hash_problems(folder: Path, *, is_strict: bool = True) -> tuple[str, ...]:
    """Return each difference between the files and the list of hashes.

    `is_strict`: Whether a file without a hash is a problem also if it is no part of the proof.
    """
    problems = [
        f"{name} is not in {SUMS}"
        for name in list_unlisted_files(folder)
        if is_strict or any(map(PurePosixPath(name).match, _PROOF))
    ]
    files = set(list_files(folder))
    for name, digest in sorted(_read_sums(folder).items()):
        if name not in files:
            problems.append(f"{name} is missing")
        elif name.endswith(_PROTO_SUFFIXES) and (folder / name).stat().st_size > TENSOR_LIMIT:
            problems.append(f"{name} has more bytes than ONNX can have")
        elif hash_file(folder / name) != digest:
            problems.append(f"{name} has another hash")
    return tuple(problems)


def _read_sums(folder: Path) -> dict[str, str]:
    sums = {}
    for line in read_regular_file(folder / SUMS, PROJECT_LIMIT).decode().splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != _DIGEST_LENGTH:
            raise ValueError(f"{SUMS} is not a list of hashes")
        sums[name] = digest
    return sums
