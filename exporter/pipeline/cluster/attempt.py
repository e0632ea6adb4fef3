"""The attempts of one job on the hosts of a cluster.

A host can end for many reasons. A job that was running there runs again elsewhere. It fails as
`killed` only if a second host ended during it, or if the only host ended several times. An end
before the first announcement is not the fault of the job: no code of the model ran.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from exporter.jobs.job import Announcement
from exporter.pipeline.engine import Task

#: Ends of one host during the same job, after which the job is the reason.
_MAX_LOSSES = 3
#: Ends of hosts at any time of the same job, so that it does not run without end.
_MAX_ENDS = 6


@dataclass(slots=True, kw_only=True)
class JobAttempt:
    """One job from its submission to its end."""

    number: int
    task: Task
    priority: int = 0
    """A larger number runs first: other jobs wait for the rest of a model."""
    future: Any = None
    """The future of Dask."""
    submissions: int = 0
    host: str = ""
    """The host that runs the job now, or ""."""
    losses: list[str] = field(default_factory=list)
    """The hosts that ended after the job announced a stage there."""
    ends: int = 0
    """The number of all ends of hosts."""
    avoided: set[str] = field(default_factory=set)
    """The hosts that must not run it."""
    allowed: list[str] | None = None
    """The addresses that may run it now, or None for all."""
    starts: int = 0
    started: float = 0.0
    announcement: Announcement | None = None

    def begin(self, host: str) -> bool:
        """Count a start; return True if the host of the previous one was lost."""
        is_again = bool(self.host)
        if is_again:
            self.lose_host()
        self.host = host
        self.announcement = None
        self.starts += 1
        self.started = time.monotonic()
        return is_again

    def lose_host(self) -> str:
        """Count the end of the host that ran the job; return its name, or "" if none ran it."""
        host, self.host = self.host, ""
        self.ends += bool(host)
        if host and self.announcement is not None:
            self.losses.append(host)
        return host

    @property
    def is_culprit(self) -> bool:
        """Whether the ends of hosts are the fault of the job."""
        is_blamed = len(set(self.losses)) > 1 or len(self.losses) >= _MAX_LOSSES
        return is_blamed or self.ends >= _MAX_ENDS
