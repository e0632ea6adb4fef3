"""Whose fault it is that a runtime does not take a file: its own, or the file's.

In: a file that a runtime refuses. Out: a `Blame`. The specification's own evaluator is asked: what
it runs as PyTorch does is a right file, and the runtime lacks something.
"""

from __future__ import annotations

from exporter.checks.protocol import CheckContext
from exporter.manifest import Device
from exporter.records.record import Blame, Culprit
from exporter.runtimes import LoadFailure, RuntimeUnavailable, open_session
from exporter.worker.diagnose.replay import SampleReplay
from exporter.worker.diagnose.time_limit import TimeLimitExceeded, limit_time

_SPECIFICATION = Device(name="reference", runtime="reference")
_SECONDS = 10.0


def blame_load_failure(subject: CheckContext, device: Device, seconds: float) -> Blame | None:
    """Whether onnx.reference loads the file and runs it on the declared inputs.

    Args:
        subject: The file, and what PyTorch says.
        device: What refuses it.
        seconds: That this may take.

    Returns:
        None where there is nobody else to ask, or nothing to compare with.
    """
    declared = subject.reference.samples[:1]
    if device.runtime == "reference" or not declared or declared[0].error:
        return None
    limit = min(seconds, _SECONDS)
    culprit = Culprit.UNKNOWN
    try:
        with limit_time(limit):
            session = open_session(subject.path, _SPECIFICATION)
            answer = SampleReplay(subject, device.name, declared[0]).ask(session)
        said = answer.text
        if answer.is_right:
            culprit = Culprit.RUNTIME
        elif answer.is_numeric:
            culprit = Culprit.EXPORTER
    except TimeLimitExceeded:
        said = f"took more than {limit:.0f} s"
    except (LoadFailure, RuntimeUnavailable) as refused:
        said = f"does not take it either: {refused}"
    except Exception as error:  # an aid to the reader must not cost the verdict
        said = f"failed: {type(error).__name__}"
    return Blame(culprit=culprit, sample=declared[0].name, evidence=(f"onnx.reference: {said}",))
