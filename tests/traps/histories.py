"""Traps: models that change in a call, and models whose changes have no effect.

Output: `HISTORIES`.
"""

from __future__ import annotations

from tests.traps.trap import (
    SOUND,
    Trap,
    contract,
    declare_input,
    declare_output,
    inconclusive,
    make_fill,
)

_INDICES = make_fill("randint", low=0, high=8)
_ROWS = {
    "inputs": (declare_input("index", "batch", dtype="int64", fill=_INDICES),),
    "outputs": (declare_output("rows", "batch", 4),),
}
_EARLIER = "depend on earlier calls"


def _keep(place: str, net: str, change: str = "") -> Trap:
    return Trap(
        name=f"first input kept in {place}",
        story="every later answer depends on which input came first",
        spec=contract(f"histories.py:{net}"),
        verdict=inconclusive("determinism", f"{_EARLIER}{change}"),
    )


HISTORIES = (
    _keep("a global variable", "GlobalValue", ", which change the global variable '_KEPT'"),
    _keep("a class", "ClassValue", ", which change the class attribute 'ClassValue.mean'"),
    _keep("a closure", "ClosureValue", ", which change the attribute 'offset'"),
    _keep("a cache", "CacheValue", ", which change the global variable '_compute_mean'"),
    _keep("a buffer", "BufferValue"),
    Trap(
        name="table in a global variable",
        story="the same table after every first call",
        spec=contract("histories.py:GlobalTable"),
        verdict=SOUND,
    ),
    Trap(
        name="rows scaled in place",
        story="a call changes the parameter that it reads",
        spec=contract("histories.py:LimitedRows", init={"limit": 0.5}, **_ROWS),
        verdict=inconclusive("determinism", "a call changes the parameter 'rows.weight'"),
    ),
    Trap(
        name="rows below their limit",
        story="a call changes no row",
        spec=contract("histories.py:LimitedRows", init={"limit": 50.0}, **_ROWS),
        verdict=SOUND,
    ),
    Trap(
        name="running maximum in a parameter",
        story="each call may enlarge the divisor of all later calls",
        spec=contract("histories.py:RunningMaximum"),
        verdict=inconclusive("determinism", "a call changes the parameter 'largest'"),
    ),
    Trap(
        name="factor from the system's random numbers",
        story="no seed reaches them, so the next export writes another file",
        spec=contract("histories.py:ScaledByDraw", init={"kind": "system"}),
        verdict=inconclusive(
            "determinism", "two builds of the model differ in the buffer 'factor'"
        ),
    ),
    *(
        Trap(
            name=f"factor from {name}'s random numbers",
            story="the seed of the manifest applies to them",
            spec=contract("histories.py:ScaledByDraw", init={"kind": name}),
            verdict=SOUND,
        )
        for name in ("python", "numpy")
    ),
    Trap(
        name="unread factor of another value in each build",
        story="no output depends on it",
        spec=contract("histories.py:UnreadDraw"),
        verdict=SOUND,
    ),
)
