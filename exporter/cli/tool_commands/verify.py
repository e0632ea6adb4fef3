"""`exporter verify`: prove files that exist already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter.build import require_packages
from exporter.cli.options.selection import root_option
from exporter.cli.output.terminal import choose_color, print_error, print_line
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.sanitize import join_lines
from exporter.core.text_format import pluralize
from exporter.manifest import Device, Manifest, load_devices, load_project
from exporter.processes import make_worker_environment
from exporter.records.record import Status
from exporter.tools.verify import FolderVerdict, list_published_folders, verify_folders
from exporter.tools.verify.client import VerifyOptions

#: A folder needs neither torch nor the exporters.
_PACKAGES = ("numpy", "onnx")


class VerifyReport(FrozenModel):
    """The output of `--json`."""

    verdicts: Items[FolderVerdict]


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@click.option(
    "--device",
    "names",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="The device that runs the files; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the verdicts as JSON.")
@root_option
def verify(paths: tuple[Path, ...], names: tuple[str, ...], root: Path, *, as_json: bool) -> int:
    """Prove published folders on this machine, without PyTorch.

    PATH is a folder of `exporter publish`, or a folder that contains some. Hashes, structure and
    outputs are checked. PyTorch's outputs are in the folder, so the extra `[verify]` is enough.

    --device names a device of the project, or a built-in one such as `openvino`. Kernels of custom
    operators are loaded from the project only.
    """
    devices = _choose_devices(root, names)
    require_packages(_PACKAGES, extra="verify")
    folders = [folder for path in paths for folder in list_published_folders(path)]
    options = VerifyOptions(
        devices=devices,
        root=root,
        manifest=_find_project(root),
        environment=make_worker_environment(os.environ),
    )
    verdicts = []
    for verdict in verify_folders(tuple(dict.fromkeys(folders)), options):
        verdicts.append(verdict)
        if not as_json:
            _print_verdict(verdict)
    if as_json:
        print_line(VerifyReport(verdicts=tuple(verdicts)).to_json().rstrip())
    return _summarize(verdicts, is_quiet=as_json)


def _choose_devices(root: Path, names: Sequence[str]) -> tuple[Device, ...]:
    devices = load_devices(root)
    unknown = [name for name in names if name not in devices]
    if unknown:
        known = ", ".join(sorted(devices))
        message = f"--device: no device has the name '{unknown[0]}'; use one of {known}"
        raise ExporterError(ExitCode.MANIFEST, message)
    return tuple(devices[name] for name in dict.fromkeys(names))


def _find_project(root: Path) -> Manifest | None:
    """Return the project at the root, or None: a published folder needs no project."""
    try:
        return load_project(root, keep_invalid=True)
    except ExporterError:
        return None


def _print_verdict(verdict: FolderVerdict) -> None:
    result = verdict.verdict
    line = f"{result.status:12}  {verdict.path} on {result.device}"
    if result.status is Status.PASS:
        samples = sum(int(each.metrics.get("samples", 0)) for each in result.checks)
        errors = [float(each.metrics.get("max_abs", 0.0)) for each in result.checks]
        line += f": {pluralize(samples, 'data set')}, largest error {max(errors):.1e}"
    elif not result.checks:
        line += f": {join_lines(result.message)}"
    print_line(line, color=choose_color(result.status))
    for check in result.checks:
        if check.status is not Status.PASS:
            print_error(f"    {check.check}: {check.status}: {join_lines(check.message)}")


def _summarize(verdicts: Sequence[FolderVerdict], *, is_quiet: bool) -> int:
    statuses = [each.verdict.status for each in verdicts]
    red = sum(status.is_red for status in statuses)
    unavailable = statuses.count(Status.UNAVAILABLE)
    proved = statuses.count(Status.PASS)
    if not is_quiet:
        parts = [f"{proved} proved", f"{red} red"]
        parts += [f"{unavailable} unavailable"] if unavailable else []
        print_line(f"{pluralize(len(verdicts), 'verdict')}: {', '.join(parts)}")
    if red:
        return ExitCode.RED
    return ExitCode.ENVIRONMENT if unavailable else ExitCode.OK
