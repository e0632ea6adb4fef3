"""The check `placement`: the requested execution provider ran the graph.

ONNX Runtime runs a node on the CPU if another provider has no kernel for it. If no node runs on the
requested provider, the result proves nothing about the device. If only some nodes do, the others
are counted and named, because shapes are computed on the CPU by design. A device with `strict`
allows no other provider. An ONNX backend cannot report single nodes; its own statement is accepted
and quoted.
"""

from __future__ import annotations

from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Placement, Session

#: Number of operators that a message names.
_MAX_OPERATORS = 5


class PlacementCheck:
    """The providers that run the nodes of the loaded file; see `RuntimeCheck`."""

    name = "placement"

    def applies(self, context: CheckContext) -> bool:
        """Return True: every result concerns a device."""
        return True

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the placement of the nodes with the requested provider.

        Returns:
            A failure if no node runs there, or if not all nodes do and the device is strict.
            An inconclusive result if the runtime reports no placement.
        """
        placement = session.placement
        if placement is None:
            message = (
                "the runtime does not report where nodes run, so no node is known to have run "
                "on the device; try a newer version of the runtime"
            )
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        if placement.statement:
            return CheckResult(check=self.name, status=Status.PASS, message=placement.statement)
        requested, nodes = placement.requested, placement.nodes
        if not any(nodes.values()) and requested not in nodes:
            message = f"the loaded graph has no node, so nothing is proved about {requested}"
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        total = sum(sum(counts.values()) for counts in nodes.values())
        elsewhere = total - sum(nodes.get(requested, {}).values())
        metrics: dict[str, int | float | str] = {"nodes": total}
        if not elsewhere:
            return CheckResult(check=self.name, status=Status.PASS, metrics=metrics)
        metrics |= {"elsewhere": elsewhere}
        if elsewhere == total:
            status, problem = Status.FAIL, f"no node runs on {requested}"
        else:
            status = Status.FAIL if placement.strict else Status.PASS
            problem = f"{elsewhere} of {total} nodes do not run on {requested}"
        message = f"{problem}: {_format_other_providers(placement)}"
        return CheckResult(check=self.name, status=status, message=message, metrics=metrics)


def _format_other_providers(placement: Placement) -> str:
    parts = []
    for provider, counts in sorted(placement.nodes.items()):
        if provider == placement.requested or not counts:
            continue
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        names = ", ".join(f"{operator} {count}" for operator, count in ranked[:_MAX_OPERATORS])
        parts.append(f"{provider} runs {names}{', …' if len(ranked) > _MAX_OPERATORS else ''}")
    return "; ".join(parts)
