"""`exporter verify`: prove files that exist already."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from exporter.api.finished_file import find_entry, make_finished_entry, prove_specs
from exporter.cli.options import root_option
from exporter.cli.output.tables import open_project
from exporter.cli.output.terminal import choose_color, print_error, print_line
from exporter.commands.publish.published_folder import GENAI_CONFIG
from exporter.commands.verify.client import (
    COMPARE_TOKENS,
    GENAI_CHECK,
    NOTED_CHECKS,
    PAIR_CHECKS,
    PairOptions,
    PublishedFile,
    VerifyOptions,
    describe_machine,
    list_published_folders,
    read_opset,
    require_own_folder,
    verify_folders,
    verify_pairs,
)
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.files import find_files
from exporter.core.text import join_lines, pluralize
from exporter.gate.verify_report import DeviceVerdict, FolderVerdict, VerifyReport
from exporter.manifest import Bound, Device, load_project, load_settings
from exporter.pipeline.device_environments import create_environments
from exporter.pipeline.required_packages import require_packages
from exporter.processes import make_worker_environment
from exporter.processes.fork_server_client import make_starter
from exporter.records.record import Status

#: A folder needs neither torch nor the exporters.
_PACKAGES = ("numpy", "onnx")


_T = TypeVar("_T")


def _parse_pairs(
    _: click.Context,
    parameter: click.Parameter,
    texts: Sequence[str],
    parse: Callable[[str], _T | None],
) -> dict[str, _T]:
    """Return the values of `NAME=VALUE` by their names."""
    pairs = {}
    for text in texts:
        name, value = text.rpartition("=")[::2]
        parsed = parse(value)
        if not name or parsed is None:
            raise click.BadParameter(f"expected {parameter.metavar}, got '{text}'")
        pairs[name] = parsed
    return pairs


def _parse_size(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) else None


def _parse_range(text: str) -> tuple[float, float] | None:
    try:
        low, high = (float(each) for each in text.split(".."))
    except ValueError:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low <= high else None


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@click.option(
    "--entry", metavar="MODEL[/OPSET]", help="Prove PATH, an ONNX file, against this entry."
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    help="Prove PATH, an ONNX file, against this ONNX file, or with the data of this folder.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="AXIS=N",
    callback=partial(_parse_pairs, parse=_parse_size),
    help="The size of a free axis of the reference file; repeatable.",
)
@click.option(
    "--values",
    multiple=True,
    metavar="INPUT=LOW..HIGH",
    callback=partial(_parse_pairs, parse=_parse_range),
    help="The values of an input of the reference file; repeatable.",
)
@click.option(
    "--atol",
    type=click.FloatRange(min=0),
    help="The absolute tolerance of a reference file.  [default: measured]",
)
@click.option(
    "--rtol", type=click.FloatRange(min=0), help="The relative tolerance of a reference file."
)
@click.option(
    "--device",
    "names",
    multiple=True,
    help="The device that runs the files; repeatable.  [default: cpu, or those of the entry]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Write the verdicts as JSON, for `exporter merge`."
)
@click.option(
    "--strict", "is_strict", is_flag=True, help="Reject files that are not in SHA256SUMS."
)
@root_option
def verify(
    paths: tuple[Path, ...],
    entry: str | None,
    reference: Path | None,
    names: tuple[str, ...],
    root: Path,
    **flags: Any,
) -> int:
    """Prove files that exist already, on this machine.

    PATH is a folder of `exporter publish`, or a folder that contains some. Hashes, structure and
    outputs are checked. PyTorch's outputs are in the folder, so the extra `[verify]` is enough. A
    file of a hub or a signature, to which nothing refers, is a note; with --strict it is red.

    With --entry or --reference, PATH is any ONNX file, such as one of a hub. --entry needs PyTorch,
    which computes the expected outputs. --reference takes them from a published folder, or from
    another ONNX file, without PyTorch: names, types, sizes and weights are compared, and outputs
    for inputs that are drawn. If numbers differ, the first wrong node is named.

    --device names a device of the project, or a built-in one such as `openvino`. Kernels of custom
    operators are loaded from the project only.
    """
    if entry is not None and reference is not None:
        raise ExporterError(ExitCode.MANIFEST, "--entry and --reference: pass one of the two")
    if entry is not None or reference is not None:
        problems = list(_find_other_paths(paths, has_tokens=reference is not None))
        if problems:
            raise ExporterError(ExitCode.NOTHING_SELECTED, problems)
    environment = make_worker_environment(os.environ)
    keys = ("sizes", "values", "atol", "rtol")
    has_file = reference is not None and reference.is_file()
    if (given := [key for key in keys if flags[key] not in (None, {})]) and not has_file:
        name = given[0].replace("sizes", "size")
        message = f"--{name}: belongs to `--reference FILE`, an ONNX file; remove it"
        raise ExporterError(ExitCode.MANIFEST, message)
    if entry is not None:
        stream = _verify_with_entry(paths, entry, names, root, environment)
    else:
        devices = _choose_devices(root, names or ("cpu",))
        require_packages(_PACKAGES, extra="verify")
        project = None
        with suppress(ExporterError):  # a published folder needs no project
            project = load_project(root, keep_invalid=True)
        options = VerifyOptions(
            devices=devices, root=root, manifest=project, environment=environment
        )
        if reference is not None and has_file:
            draw = {key: flags[key] for key in keys[:2]}
            bound = Bound(atol=flags["atol"], rtol=flags["rtol"])
            stream = verify_pairs(paths, reference, options, PairOptions(bound=bound, **draw))
        else:
            files = (
                replace(item, is_strict=flags["is_strict"])
                for item in _list_files(paths, reference)
            )
            stream = verify_folders(tuple(files), options)
    verdicts = []
    for verdict in stream:
        verdicts.append(verdict)
        if not flags["as_json"]:
            _print_verdict(verdict)
    if flags["as_json"]:
        now = datetime.now(UTC).replace(microsecond=0)
        report = VerifyReport(time=now, machine=describe_machine(), verdicts=tuple(verdicts))
        click.echo(report.to_json(), nl=False)  # exactly the text with the digest
    return _summarize(verdicts, is_quiet=flags["as_json"])


def _find_other_paths(paths: Sequence[Path], *, has_tokens: bool) -> Iterator[Problem]:
    """Yield a problem for each path that is no file, and no folder whose tokens are compared."""
    for path in paths:
        require_own_folder(path)
        folders = [config.parent for config in find_files(path, GENAI_CONFIG)]
        if path.is_file() or (has_tokens and path in folders):
            continue
        problem = "no such file; pass the path of an ONNX file"
        if folders:
            fix = f"name {folders[0]}" if has_tokens else f"name its file, or {COMPARE_TOKENS}"
            problem = f"is a folder of a decoder; {fix}"
        yield Problem(message=f"{path}: {problem}")


def _list_files(paths: Sequence[Path], reference: Path | None) -> tuple[PublishedFile, ...]:
    if reference is None:
        folders = [folder for path in paths for folder in list_published_folders(path)]
        return tuple(PublishedFile(folder=folder) for folder in dict.fromkeys(folders))
    folders = list(list_published_folders(reference))
    if folders != [reference]:
        message = f"{reference}: contains several published folders; name one, such as {folders[0]}"
        raise ExporterError(ExitCode.MANIFEST, message)
    return tuple(PublishedFile(folder=reference, file=path) for path in paths)


def _verify_with_entry(
    paths: Sequence[Path],
    entry: str,
    names: tuple[str, ...],
    root: Path,
    environment: Mapping[str, str],
) -> Iterator[FolderVerdict]:
    """Yield the verdicts of each file against an entry, with PyTorch's outputs."""
    model_id, _, opset = entry.partition("/")
    if opset and not opset.isdecimal():
        message = f"--entry: expected MODEL or MODEL/OPSET, got '{entry}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    manifest = open_project(root)
    spec = find_entry(manifest, model_id)
    if names:
        _choose_devices(root, names)
    require_packages()
    project = manifest.project
    with closing(make_starter(os.environ, project.environment)) as starter:
        for path in paths:
            try:
                number = int(opset) if opset else read_opset(path, environment)
            except ExporterError as error:
                verdict = DeviceVerdict(
                    device="every device", status=Status.ERROR, message=str(error)
                )
                yield FolderVerdict(path=str(path), model="", opset=None, verdict=verdict)
                continue
            finished = make_finished_entry(spec, path, number, names)
            for record in prove_specs(manifest.project, [finished], starter):
                check = record.check or record.stage or ""
                # The packages of a runtime belong to a folder of another machine.
                verdict = DeviceVerdict.from_fields(
                    record, device=record.cell.device, check=check, runtime=""
                )
                yield FolderVerdict(path=str(path), model=model_id, opset=number, verdict=verdict)


def _choose_devices(root: Path, names: Sequence[str]) -> tuple[Device, ...]:
    """Return the devices; their environments are created."""
    project = load_settings(root)
    known = sorted(device.name for device in project.devices)
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"--device: no device has the name '{unknown[0]}'; use one of {', '.join(known)}"
        raise ExporterError(ExitCode.MANIFEST, message)
    chosen = tuple(project.find_device(name).name for name in dict.fromkeys(names))
    created = create_environments(project, chosen, partial(click.echo, err=True))
    return tuple(map(created.find_device, chosen))


def _print_verdict(verdict: FolderVerdict) -> None:
    result = verdict.verdict
    line = f"{result.status:12}  {verdict.path} on {result.device}"
    line += f" ({result.session})" if result.session else ""
    if result.status is Status.PASS and result.check != GENAI_CHECK:
        samples = sum(int(each.metrics.get("samples", 0)) for each in result.checks)
        errors = [float(each.metrics.get("max_abs", 0.0)) for each in result.checks]
        line += f": {pluralize(samples, 'data set')}, largest error {max(errors):.1e}"
    elif all(check.status is Status.PASS for check in result.checks):
        line += f": {join_lines(result.message)}"
    print_line(line, color=choose_color(result.status))
    for check in result.checks:
        if check.status is not Status.PASS:
            print_error(f"    {check.check}: {check.status}: {join_lines(check.message)}")
        elif check.check in NOTED_CHECKS:
            note = join_lines(check.message)
            note = f"{check.check}: {note}" if note and check.check in PAIR_CHECKS else note
            if note not in line:
                print_line(f"    note: {note}")
    for advice in result.advice:
        print_error(f"    advice: {join_lines(advice)}")


def _summarize(verdicts: Sequence[FolderVerdict], *, is_quiet: bool) -> int:
    statuses = [each.verdict.status for each in verdicts]
    red = sum(status.is_red for status in statuses)
    unavailable = statuses.count(Status.UNAVAILABLE)
    proved = statuses.count(Status.PASS)
    if not is_quiet:
        parts = [f"{proved} proved", f"{red} red"]
        if unavailable:
            parts.append(f"{unavailable} unavailable")
        print_line(f"{pluralize(len(verdicts), 'verdict')}: {', '.join(parts)}")
    if red:
        return ExitCode.RED
    return ExitCode.ENVIRONMENT if unavailable else ExitCode.OK
