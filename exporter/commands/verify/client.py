"""Published folders below a path, and their verdicts, each from a child process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field, ValidationError

from exporter.commands.publish.published_folder import (
    CONTRACT,
    GENAI_CONFIG,
    MARKER,
    MODEL,
    Publication,
    read_contract,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import (
    TENSOR_LIMIT,
    find_files,
    hash_file,
    require_inside_checkout,
)
from exporter.core.frozen_model import FrozenModel
from exporter.core.system import IS_LINUX, describe_platform, measure_memory
from exporter.core.text import join_lines
from exporter.gate.verify_report import (
    DeviceVerdict,
    FolderVerdict,
)
from exporter.manifest import Bound, Device, Manifest, ModelSpec
from exporter.manifest.syntax.releases import format_release
from exporter.manifest.syntax.table import list_functions
from exporter.processes.child_call import MEMORY, ChildFailure, call_in_child
from exporter.records.record import Status, format_validation_error

_CHILD = "exporter.commands.verify.child.folder_checks"
_CHILD_OF_PAIRS = "exporter.commands.verify.child.file_pair"
#: The largest `timeout` of a folder, whose contract is not trusted.
_MAX_SECONDS = 3600.0
#: Bytes of addresses that the libraries map and do not use, beside the memory of the machine.
_ADDRESSES = 4 << 30
#: The check of hashes and names; its message is a note if it passes.
FILES_CHECK = "files"
#: The check of the tokens of ONNX Runtime GenAI; its message is a note, too.
GENAI_CHECK = "genai"
#: The checks of a file against another one before it runs.
PAIR_CHECKS = WEIGHTS_CHECK, SIGNATURE_CHECK = "weights", "signature"
#: The checks whose messages are notes if they pass.
NOTED_CHECKS = (FILES_CHECK, GENAI_CHECK, *PAIR_CHECKS)
#: The fix for a folder of another builder.
COMPARE_TOKENS = "compare its tokens by `--reference FOLDER` with the published folder of the entry"


def describe_machine() -> str:
    """Return the system and the processors: `Linux x86_64, AMD EPYC 9454, NVIDIA A10`."""
    names = [describe_platform()]
    files = (Path("/proc/cpuinfo"), *Path("/proc/driver/nvidia/gpus").glob("*/information"))
    if IS_LINUX:
        for path in files:
            with suppress(OSError):
                match = re.search(r"(?m)^(?:model name|Model)\s*:\s*(.+)$", path.read_text())
                if match:
                    names.append(join_lines(match[1]))
    return ", ".join(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A published folder, or another file with the promises and the test data of one."""

    folder: Path
    file: Path | None = None
    """Or a folder with `genai_config.json`, which is proved by its tokens."""
    is_strict: bool = False
    """Whether a file that nothing refers to is a problem."""

    @property
    def path(self) -> Path:
        """The path that the user named."""
        return self.file or self.folder


class PairOptions(FrozenModel):
    """What the user knows about a reference file, from which nothing else is known."""

    values: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """The lowest and the highest value by the name of an input."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """By the name of an axis."""
    bound: Bound = Bound()
    """The tolerance of all outputs; measured if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of all folders."""

    devices: tuple[Device, ...]
    root: Path
    """The project with the kernels of custom operators, if there is one."""
    manifest: Manifest | None
    environment: Mapping[str, str]
    """The environment of the child process."""


def list_published_folders(path: Path) -> tuple[Path, ...]:
    """Return the published folders at or below a path, in the order of their names.

    Raises:
        ExporterError: NOTHING_SELECTED if there is none.
            ENVIRONMENT if the folder is a link out of the repository; see `require_own_folder`.
    """
    require_own_folder(path)
    if not path.exists():
        raise ExporterError(
            ExitCode.NOTHING_SELECTED, f"{path}: does not exist; name a published folder or a file"
        )
    if path.suffix == ".onnx":
        message = (
            f"{path}: is a file; add `--entry MODEL` with the entry that it must fulfill, or "
            "`--reference FOLDER` with a published folder"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    folders = tuple(marker.parent for marker in find_files(path, MARKER))
    if not folders:
        fix = "name such a folder, or a file `*.onnx` with `--entry MODEL`"
        fix = COMPARE_TOKENS if find_files(path, GENAI_CONFIG) else fix
        message = f"{path}: contains no folder of `exporter publish` (with {MARKER}); {fix}"
        raise ExporterError(ExitCode.NOTHING_SELECTED, message)
    return folders


def require_own_folder(path: Path) -> None:
    """Raise an error if a folder is a link out of the repository, before it is searched.

    With `dist -> /`, which git can store, all folders of the machine would be searched.
    """
    if path.is_dir():
        require_inside_checkout(path)


def read_opset(path: Path, environment: Mapping[str, str]) -> int:
    """Return the opset of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if it is not an ONNX file.
    """
    try:
        return call_in_child(f"{_CHILD}:read_opset", {"path": path.resolve()}, int, environment)
    except (ChildFailure, ExporterError) as error:
        raise ExporterError(ExitCode.UNREADABLE, f"{path}: {error}") from error


def verify_folders(
    files: Sequence[PublishedFile], options: VerifyOptions
) -> Iterator[FolderVerdict]:
    """Yield the verdict of each file on each device as soon as it is known."""
    for item in files:
        folder = item.folder
        model_id = ""
        opset = None
        digest = ""
        verdicts: tuple[DeviceVerdict, ...]
        message = f"{MARKER} cannot be read"
        try:
            publication = Publication.from_folder(folder)
            message = f"{CONTRACT} cannot be read"
            spec = read_contract(folder)
            message = "the folder cannot be proved"
            model_id, opset = publication.model, publication.opset
            with suppress(OSError):  # the check `files` reports it
                digest = _hash_model(item.file or folder / MODEL)
                # Evidence is about the file that an export wrote, without the added description.
                digest = (digest == publication.sha256 and publication.exported) or digest
            verdicts = _request_verdicts(item, publication, spec, options)
        except Exception as error:  # noqa: BLE001 - one folder does not end the verdicts of others
            text = str(error)
            if isinstance(error, ValidationError):
                text = format_validation_error(error)
            problem = text.partition("\n")[0] or type(error).__name__
            verdicts = _repeat(options, Status.ERROR, f"{message}: {problem}")
        for each in verdicts:
            yield FolderVerdict(
                path=str(item.path), model=model_id, opset=opset, verdict=each, sha256=digest
            )


def verify_pairs(
    paths: Sequence[Path],
    reference: Path,
    options: VerifyOptions,
    pair: PairOptions,
) -> Iterator[FolderVerdict]:
    """Yield the verdict of each file against another file on each device."""
    for path in paths:
        arguments = {
            "file": path.resolve(),
            "reference": reference.resolve(),
            "devices": options.devices,
            "options": pair,
        }
        digest = ""
        with suppress(OSError):
            digest = _hash_model(path)
        try:
            opset, verdicts = call_in_child(
                f"{_CHILD_OF_PAIRS}:compare_files",
                arguments,
                tuple[int | None, tuple[DeviceVerdict, ...]],
                _limit_memory(options),
                seconds=_MAX_SECONDS,
            )
        except ChildFailure as failure:
            status = Status.TIMEOUT if failure.code is None else Status.CRASH
            opset, verdicts = None, _repeat(options, status, f"the process that runs it {failure}")
        for each in verdicts:
            yield FolderVerdict(path=str(path), model="", opset=opset, verdict=each, sha256=digest)


def _hash_model(path: Path) -> str:
    """Return the hash of an ONNX file, or "" for one that is too large: a child names it.

    A sparse file of terabytes would be read for hours, by this process without a time limit.
    """
    return hash_file(path) if path.stat().st_size <= TENSOR_LIMIT else ""


def _limit_memory(options: VerifyOptions) -> dict[str, str]:
    """Return the environment of a child that allocates no more than the memory of the machine."""
    environment = dict(options.environment)
    names = [name for each in options.devices for name in (each.device or "CPU", *each.providers)]
    if all(name.startswith("CPU") for name in names):  # a GPU reserves more than the memory
        environment[MEMORY] = str(measure_memory() + _ADDRESSES)
    return environment


def list_check_functions(spec: ModelSpec) -> list[str]:
    """Return the functions of the project that checks call.

    Those of `rollout` run in an export only: the samples have their values.
    """
    values = (spec.outputs, spec.metric)
    return [*list_functions(values)]


def _request_verdicts(
    item: PublishedFile, publication: Publication, spec: ModelSpec, options: VerifyOptions
) -> tuple[DeviceVerdict, ...]:
    # The entry of the project with kernels and comparators.
    has_code = spec.custom_ops or list_check_functions(spec)
    models = options.manifest.models if options.manifest and has_code else ()
    entries = (model for model in models if model.id == spec.id and not model.problems)
    arguments = {
        "item": replace(
            item, folder=item.folder.resolve(), file=item.file.resolve() if item.file else None
        ),
        "publication": publication,
        "spec": spec.resolve_cell(publication.opset),
        "devices": options.devices,
        "root": options.root.resolve(),
        "kernels": next(entries, None),
    }
    try:
        verdicts = call_in_child(
            f"{_CHILD}:check_folder",
            arguments,
            tuple[DeviceVerdict, ...],
            _limit_memory(options),
            seconds=min(spec.timeout, _MAX_SECONDS),
        )
        return tuple(_explain_release(item, publication, verdict) for verdict in verdicts)
    except ChildFailure as failure:
        status = Status.TIMEOUT if failure.code is None else Status.CRASH
        return _repeat(options, status, f"the process that runs it {failure}")


def _explain_release(
    item: PublishedFile, publication: Publication, verdict: DeviceVerdict
) -> DeviceVerdict:
    """Replace the message if the file needs a newer release of ONNX Runtime."""
    match = re.match(r"onnxruntime\S* (\d+)\.(\d+)", verdict.runtime)
    needed = publication.release
    if item.file or not match or not needed or (int(match[1]), int(match[2])) >= needed:
        return verdict
    release = format_release(needed)
    fix = f"install 'onnxruntime>={release}'"
    for path in sorted(item.folder.resolve().parent.glob(f"*/{MARKER}")):
        with suppress(OSError, ValueError):
            other = Publication.from_folder(path.parent)
            if other.is_green and other.release and other.release <= (int(match[1]), int(match[2])):
                fix += f", or use opset {other.opset}"
    message = f"the file needs ONNX Runtime {release}, and {verdict.runtime} is installed; {fix}"
    return verdict.model_copy(update={"message": message} if verdict.status.is_red else {})


def _repeat(options: VerifyOptions, status: Status, message: str) -> tuple[DeviceVerdict, ...]:
    return tuple(
        DeviceVerdict(device=device.name, status=status, message=message)
        for device in options.devices
    )
