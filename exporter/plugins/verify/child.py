"""The child process of `verify`: the hashes of a folder, and the checks of its file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import join_names, pluralize
from exporter.manifest import Device, ModelSpec
from exporter.manifest.syntax.table import list_functions
from exporter.plugins.publish.child import DamagedFolder, prove_folder
from exporter.plugins.publish.published_folder import (
    SUMS,
    Publication,
    find_hash_problems,
    list_special_files,
    list_unlisted_files,
)
from exporter.plugins.verify.client import FILES_CHECK, DeviceVerdict, PublishedFile, hash_settings
from exporter.records.record import CellId, CheckResult, Record, Status
from exporter.runtimes import NO_KERNELS, Kernels, RuntimeUnavailable, load_kernels
from exporter.runtimes.graph_walk import normalize_domain

#: Problems in a message.
_SHOWN_PROBLEMS = 3
_NO_FUNCTIONS = (
    "it is compared by {}; run the command in the project of the entry with this `compare`, or "
    "pass the project's folder as --root"
)
_NO_KERNELS = (
    "it needs kernels of custom operators; run the command in the project of the entry, or pass "
    "the project's folder as --root"
)


def read_opset(path: Path) -> int:
    """Return the opset of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if it is not an ONNX file.
    """
    try:
        model = read_model(path)
    except UnreadableModel as error:
        raise ExporterError(ExitCode.UNREADABLE, str(error)) from error
    for each in model.opset_import:
        if not normalize_domain(each.domain) and each.version:
            return int(each.version)
    raise ExporterError(ExitCode.UNREADABLE, "imports no opset of ONNX")


def check_folder(
    item: PublishedFile,
    publication: Publication,
    spec: ModelSpec,
    devices: tuple[Device, ...],
    root: Path,
    kernels: ModelSpec | None,
) -> tuple[DeviceVerdict, ...]:
    """Prove one published folder on every device.

    `item`: The published folder, and the file that is proved in place of the published one.
    `kernels`: The entry with the kernels. The paths in a published contract are not trusted.
    """
    special = list_special_files(item.folder)
    problems = [] if special else list(_find_file_problems(item, publication))
    try:
        if special:
            raise DamagedFolder(
                f"expected regular files, which can be copied: {join_names(special)}"
            )
        # Not the functions that the folder names.
        calls, known = _list_functions(spec), _list_functions(kernels) if kernels else []
        if not set(calls) <= set(known):
            raise RuntimeUnavailable(_NO_FUNCTIONS.format(join_names(calls)))
        spec = spec.model_copy(update={"manifest": kernels.manifest}) if kernels else spec
        code = (_load_kernels(spec, root, kernels), root)
        records = tuple(prove_folder(item.folder, item.file, publication, spec, devices, code))
    except (RuntimeUnavailable, DamagedFolder) as error:
        if isinstance(error, DamagedFolder):
            problems.append(str(error))
        cells = (CellId(model=spec.id, opset=publication.opset, device=d.name) for d in devices)
        records = tuple(
            Record(cell=cell, status=Status.UNAVAILABLE, check="load", message=str(error))
            for cell in cells
        )
    files = _check_files(item, problems)
    return tuple(
        _make_verdict(device, files, record)
        for device, record in zip(devices, records, strict=True)
    )


def _make_verdict(device: Device, files: CheckResult, record: Record) -> DeviceVerdict:
    is_red = files.status is not Status.PASS
    return DeviceVerdict(
        device=device.name,
        status=files.status if is_red else record.status,
        check=files.check if is_red else record.check or record.stage or "",
        message=files.message if is_red else record.message,
        checks=(files, *record.checks),
        runtime=record.runtime or _describe_runtime(device),
        session=device.settings,
        settings=hash_settings(device),
    )


def _describe_runtime(device: Device) -> str:
    """Return the packages of the runtime in this process: `onnxruntime-gpu 1.31.1`."""
    modules = [device.row.package or device.module.partition(".")[0] or device.runtime]
    modules += [device.provider_library.partition(":")[0].partition(".")[0]]
    packages = packages_distributions()
    names = dict.fromkeys(name for module in modules for name in packages.get(module, ()))
    return ", ".join(f"{name} {version(name)}" for name in names) or modules[0]


def _find_file_problems(item: PublishedFile, publication: Publication) -> Iterator[str]:
    """Compare the files with the hashes, the data sets with the list, and read the old verdict."""
    try:
        yield from find_hash_problems(item.folder, is_strict=item.is_strict)
    except (OSError, ValueError) as error:
        yield f"{SUMS} cannot be read: {error}"
    expected = {each.folder for each in publication.data_sets}
    actual = {path.name for path in item.folder.glob("test_data_set_*")}
    if expected != actual:
        names = join_names(sorted(expected ^ actual))
        yield f"the data sets differ from those in exporter.json: {names}"
    if not publication.is_green and item.file is None:
        yield f"it was published although it is red: {publication.warning}"


def _check_files(item: PublishedFile, problems: list[str]) -> CheckResult:
    if not problems:
        others = list_unlisted_files(item.folder)
        note = f"not in {SUMS}, and nothing refers to it: {join_names(others)}" if others else ""
        return CheckResult(check=FILES_CHECK, status=Status.PASS, message=note)
    more = len(problems) - _SHOWN_PROBLEMS
    rest = [pluralize(more, "more problem")] if more > 0 else []
    text = "; ".join((*problems[:_SHOWN_PROBLEMS], *rest))
    return CheckResult(check=FILES_CHECK, status=Status.FAIL, message=text)


def _list_functions(spec: ModelSpec) -> list[str]:
    return [*list_functions(spec.outputs), *list_functions(spec.metric)]


def _load_kernels(spec: ModelSpec, root: Path, entry: ModelSpec | None) -> Kernels:
    if not any(op.ort_library or op.reference for op in spec.custom_ops):
        return NO_KERNELS
    if entry is None:
        raise RuntimeUnavailable(_NO_KERNELS)
    try:
        return load_kernels(entry, root)
    except Exception as error:
        raise RuntimeUnavailable(f"the kernels cannot be loaded: {error}") from error
