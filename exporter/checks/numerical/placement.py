"""`placement`: the provider that the device asks for ran the graph.

ONNX Runtime gives to the CPU what another provider has no kernel for. A file of which nothing runs
where it was asked to proves nothing about that device. Where a part does, the rest is counted and
named, since shapes are computed on the CPU by design; a device that says `strict` allows none. A
backend has no words for single nodes: that it says that it runs there is taken, and told.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Placement as Placed
from exporter.runtimes import Session

#: So many operators are named.
_NAMED = 5


class PlacementCheck:
    """Where the nodes of the loaded file run; see `RuntimeCheck`."""

    name = "placement"

    def applies(self, subject: CheckContext) -> bool:
        """Every result is about a device."""
        return True

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Fails where nothing runs on the provider, or where not all of it does and must.

        Inconclusive where nothing is known to run there.
        """
        placed = session.placement
        if placed is None:
            message = (
                "the runtime does not tell where nodes run, so nothing here is known to have run "
                "on the device; a newer version of it may tell"
            )
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        if placed.word:
            return CheckResult(check=self.name, status=Status.PASS, message=placed.word)
        if not any(placed.nodes.values()) and placed.asked not in placed.nodes:
            message = f"no node of the graph is left to run, so nothing is known of {placed.asked}"
            return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
        total = sum(sum(nodes.values()) for nodes in placed.nodes.values())
        away = total - sum(placed.nodes.get(placed.asked, {}).values())
        metrics: dict[str, int | float | str] = {"nodes": total}
        if not away:
            return CheckResult(check=self.name, status=Status.PASS, metrics=metrics)
        metrics |= {"elsewhere": away}
        if away == total:
            status, what = Status.FAIL, f"no node runs on {placed.asked}"
        else:
            status = Status.FAIL if placed.strict else Status.PASS
            what = f"{away} of {total} nodes do not run on {placed.asked}"
        message = f"{what}: {_elsewhere(placed)}"
        return CheckResult(check=self.name, status=status, message=message, metrics=metrics)


def _elsewhere(placed: Placed) -> str:
    others = {name: nodes for name, nodes in placed.nodes.items() if name != placed.asked and nodes}
    return "; ".join(f"{name} runs {_operators(nodes)}" for name, nodes in sorted(others.items()))


def _operators(nodes: Mapping[str, int]) -> str:
    most = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{operator} {count}" for operator, count in most[:_NAMED])
    return f"{named}, …" if len(most) > _NAMED else named
