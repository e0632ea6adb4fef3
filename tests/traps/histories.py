"""Traps: models that change in a call, and models whose changes have no effect."""

from __future__ import annotations

from tests.traps.trap import Trap, contract, declare_input, declare_output, inconclusive, make_fill

_INDICES = make_fill("randint", low=0, high=8)
_ROWS = {
    "inputs": (declare_input("index", "batch", dtype="int64", fill=_INDICES),),
    "outputs": (declare_output("rows", "batch", 4),),
}
_EARLIER = "depend on earlier calls"


def _keep(place: str, net: str, change: str = "") -> Trap:
    return Trap(
        f"first input kept in {place}",
        "every later answer depends on which input came first",
        contract(f"histories.py:{net}"),
        inconclusive("determinism", f"{_EARLIER}{change}"),
    )


HISTORIES = (
    _keep("a global variable", "GlobalValue", ", which change the global variable '_KEPT'"),
    _keep("a class", "ClassValue", ", which change the class attribute 'ClassValue.mean'"),
    _keep("a closure", "ClosureValue", ", which change the attribute 'offset'"),
    _keep("a cache", "CacheValue", ", which change the global variable '_compute_mean'"),
    _keep("a buffer", "BufferValue"),
    Trap(
        "table in a global variable",
        "the same table after every first call",
        contract("histories.py:GlobalTable"),
    ),
    Trap(
        "rows scaled in place",
        "a call changes the parameter that it reads",
        contract("histories.py:LimitedRows", init={"limit": 0.5}, **_ROWS),
        inconclusive("determinism", "a call changes the parameter 'rows.weight'"),
    ),
    Trap(
        "rows below their limit",
        "a call changes no row",
        contract("histories.py:LimitedRows", init={"limit": 50.0}, **_ROWS),
    ),
    Trap(
        "running maximum in a parameter",
        "each call may enlarge the divisor of all later calls",
        contract("histories.py:RunningMaximum"),
        inconclusive("determinism", "a call changes the parameter 'largest'"),
    ),
    Trap(
        "factor from the system's random numbers",
        "no seed reaches them, so the next export writes another file",
        contract("histories.py:ScaledByDraw", init={"kind": "system"}),
        inconclusive("determinism", "two builds of the model differ in the buffer 'factor'"),
    ),
    *(
        Trap(
            f"factor from {name}'s random numbers",
            "the seed of the manifest applies to them",
            contract("histories.py:ScaledByDraw", init={"kind": name}),
        )
        for name in ("python", "numpy")
    ),
    Trap(
        "unread factor of another value in each build",
        "no output depends on it",
        contract("histories.py:UnreadDraw"),
    ),
)
