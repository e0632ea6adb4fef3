"""The checks of a published folder: its hashes, and the checks of an export on its file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

from exporter.core.runtime_table import RUNTIMES
from exporter.core.text import join_names, pluralize
from exporter.manifest import Device
from exporter.records.record import CheckResult, Record, Status
from exporter.runtimes import NO_KERNELS, Kernels, RuntimeUnavailable, load_kernels
from exporter.tools.publish.child.proof import DamagedFolder, prove_folder
from exporter.tools.publish.published_folder import find_hash_problems
from exporter.tools.verify.protocol import (
    DeviceVerdict,
    VerifyRequest,
    VerifyResponse,
    hash_settings,
)

_FILES_CHECK = "files"
#: Problems in a message.
_SHOWN_PROBLEMS = 3
_NO_KERNELS = (
    "it needs kernels of custom operators; run the command in the project of the entry, or pass "
    "the project's folder as --root"
)


def check_folder(request: VerifyRequest) -> VerifyResponse:
    """Prove one published folder on every device."""
    return VerifyResponse(verdicts=tuple(_list_verdicts(request)))


def _list_verdicts(request: VerifyRequest) -> Iterator[DeviceVerdict]:
    devices = {device.name: device for device in request.devices}
    folder, file = Path(request.folder), Path(request.file) if request.file else None
    problems = list(_find_file_problems(request))
    try:
        kernels, publication = _load_kernels(request), request.publication
        records = prove_folder(folder, file, publication, request.spec, request.devices, kernels)
        for record in records:
            device = devices[record.cell.device]
            yield _make_verdict(device, _check_files(problems), record)
        return
    except RuntimeUnavailable as error:
        status, message = Status.UNAVAILABLE, str(error)
    except DamagedFolder as error:
        status, message = Status.ERROR, ""
        problems.append(str(error))
    files = _check_files(problems)
    for device in request.devices:
        is_red = files.status is not Status.PASS
        yield DeviceVerdict(
            device=device.name,
            status=files.status if is_red else status,
            check=files.check if is_red else "load",
            message=files.message or message,
            checks=(files,),
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
        settings=hash_settings(device),
    )


def _describe_runtime(device: Device) -> str:
    """Return the packages of the runtime in this process: `onnxruntime-gpu 1.31.1`."""
    row = RUNTIMES.get(device.runtime)
    modules = [(row and row.package) or device.module.partition(".")[0] or device.runtime]
    modules += [device.provider_library.partition(":")[0].partition(".")[0]]
    packages = packages_distributions()
    names = dict.fromkeys(name for module in modules for name in packages.get(module, ()))
    return ", ".join(f"{name} {version(name)}" for name in names) or modules[0]


def _find_file_problems(request: VerifyRequest) -> Iterator[str]:
    """Compare the files with the hashes, the data sets with the list, and read the old verdict."""
    folder, publication = Path(request.folder), request.publication
    try:
        yield from find_hash_problems(folder)
    except (OSError, ValueError) as error:
        yield f"SHA256SUMS cannot be read: {error}"
    expected = {item.folder for item in publication.data_sets}
    actual = {path.name for path in folder.glob("test_data_set_*")}
    if expected != actual:
        names = join_names(sorted(expected ^ actual))
        yield f"the data sets differ from those in exporter.json: {names}"
    if not publication.is_green and not request.file:
        yield f"it was published although it is red: {publication.warning}"


def _check_files(problems: list[str]) -> CheckResult:
    if not problems:
        return CheckResult(check=_FILES_CHECK, status=Status.PASS)
    more = len(problems) - _SHOWN_PROBLEMS
    rest = [pluralize(more, "more problem")] if more > 0 else []
    text = "; ".join((*problems[:_SHOWN_PROBLEMS], *rest))
    return CheckResult(check=_FILES_CHECK, status=Status.FAIL, message=text)


def _load_kernels(request: VerifyRequest) -> Kernels:
    if not any(op.ort_library or op.reference for op in request.spec.custom_ops):
        return NO_KERNELS
    if request.kernels is None:
        raise RuntimeUnavailable(_NO_KERNELS)
    try:
        return load_kernels(request.kernels, Path(request.root))
    except Exception as error:
        raise RuntimeUnavailable(f"the kernels cannot be loaded: {error}") from error
