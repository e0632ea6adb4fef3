"""The limits of the control groups of this process, as containers and schedulers set them (Linux).

Neither the affinity of a process nor the physical memory shows them: a pod with 2 CPUs and 4 GiB
sees all cores and all memory of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PROC = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """The smallest limit of a resource among the groups of this process and the groups above."""

    value: float
    """Cores, or bytes."""
    file: str
    """The file that has it: `/sys/fs/cgroup/memory.max`."""


def find_core_limit(proc: Path = _PROC) -> GroupLimit | None:
    """Return the cores whose time the process may use, such as 1.5; None if all of them.

    `proc`: The folder of the process in `/proc`.
    """
    files = {"": ("cpu.max", _read_cores), "cpu": ("cpu.cfs_quota_us", _read_quota)}
    return _find_smallest(proc, files)


def find_memory_limit(proc: Path = _PROC) -> GroupLimit | None:
    """Return the bytes that the process and its neighbors may use; None if all of them."""
    files = {
        "": ("memory.max", _read_number),
        "memory": ("memory.limit_in_bytes", _read_number),
    }
    return _find_smallest(proc, files)


#: By controller, "" for version 2: the file, and a function that returns its value or None.
_LimitFiles = Mapping[str, tuple[str, Callable[[Path], float | None]]]


def _find_smallest(proc: Path, files: _LimitFiles) -> GroupLimit | None:
    limits = []
    for controller, folder in _list_groups(proc):
        if controller not in files:
            continue
        name, read = files[controller]
        try:
            value = read(folder / name)
        except (OSError, ValueError):  # the root group has no such file
            continue
        if value is not None and value > 0:
            limits.append(GroupLimit(value, str(folder / name)))
    return min(limits, key=lambda limit: limit.value, default=None)


def _list_groups(proc: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folder of each group of the process and of each group above it that is visible.

    Yields:
        The controller, "" for version 2, and the folder.
    """
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    # `4:cpu,cpuacct:/docker/1f`; version 2 has no controllers: `0::/docker/1f`.
    paths: dict[str, str] = {}
    for group in groups:
        _, _, rest = group.partition(":")
        controllers, _, path = rest.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    for mount in mounts:
        # `35 31 0:32 /docker/1f /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`
        left, _, right = mount.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, folder = fields[3], Path(fields[4].replace("\\040", " "))
        for controller in [""] if kind[0] == "cgroup2" else kind[2].split(","):
            if controller not in paths:
                continue
            try:  # a container may show only its own group, as the root of the mount
                relative = PurePosixPath(paths[controller]).relative_to(root)
            except ValueError:
                relative = PurePosixPath()
            if ".." in relative.parts:
                relative = PurePosixPath()
            for part in (relative, *relative.parents):
                yield controller, folder / part


def _read_number(path: Path) -> float | None:
    """Return the number of a file; None for `max` and for -1, which are no limit."""
    text = path.read_text(encoding="ascii").split()[0]
    return None if text in ("max", "-1") else float(text)


def _read_cores(path: Path) -> float | None:
    """Return the cores of `cpu.max`: `150000 100000` are 1.5."""
    quota, _, period = path.read_text(encoding="ascii").strip().partition(" ")
    return None if quota == "max" else float(quota) / float(period or 100_000)


def _read_quota(path: Path) -> float | None:
    """Return the cores of `cpu.cfs_quota_us`, whose period is in the file beside it."""
    quota, period = _read_number(path), _read_number(path.with_name("cpu.cfs_period_us"))
    return None if quota is None or not period else quota / period
