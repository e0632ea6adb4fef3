"""Traps: models that change in a call, and models whose changes have no effect."""

from __future__ import annotations

from tests.traps.trap import (
    DYNAMO,
    TORCHSCRIPT,
    Trap,
    Verdict,
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
        f"first input kept in {place}",
        "every later answer depends on which input came first",
        contract(f"histories.py:{net}"),
        inconclusive("determinism", f"{_EARLIER}{change}"),
    )


_POSITION = {
    "inputs": (
        declare_input("x", 4),
        declare_input(
            "position",
            at="args[1]",
            shape=(),
            dtype="int64",
            fill=make_fill("value", value=0),
        ),
    ),
    "outputs": (declare_output("y", 4),),
    "axes": (),
}
_BUFFERS = inconclusive("determinism", "it keeps state in its buffers (rows): output 'y'")


def _cache(name: str, kind: str, verdict: Verdict = _BUFFERS, opset: int = TORCHSCRIPT) -> Trap:
    return Trap(
        f"static cache at position 0, {name}",
        "the example reads only what its own call writes",
        contract("histories.py:StaticCache", opset, init={"kind": kind}, **_POSITION),
        verdict,
    )


def _step(name: str, dtype: str, value: int) -> dict[str, object]:
    fill = make_fill("value", value=value) if dtype == "int64" else make_fill("randint", high=2)
    step = declare_input(name, at="args[1]", shape=(), dtype=dtype, fill=fill)
    return {"inputs": (declare_input(), step)}


HISTORIES = (
    _cache("replaced", "replaced"),
    _cache("written in place", "written", opset=DYNAMO),
    _cache("that is absent at first", "absent"),
    _cache(
        "in an attribute",
        "attribute",
        inconclusive("determinism", f"{_EARLIER}, which change the attribute 'rows'"),
    ),
    *(
        Trap(
            f"static cache in a private attribute of an object, opset {opset}",
            "the example reads only what its own call writes",
            contract("histories.py:PrivateCache", opset, **_POSITION),
            inconclusive("determinism", f"{_EARLIER}, which change the attribute '_kept._rows'"),
        )
        for opset in (TORCHSCRIPT, DYNAMO)
    ),
    Trap(
        "buffer that each call writes whole",
        "nothing of an earlier call remains",
        contract("histories.py:ScratchRows", DYNAMO, **_POSITION),
    ),
    Trap(
        "hidden state behind a flag",
        "the example begins with zeros",
        contract("histories.py:HiddenState", **_step("begins", "bool", 1)),
        inconclusive("determinism", "keeps state in its buffers (hidden)"),
    ),
    Trap(
        "moving average that begins at step 0",
        "the example is step 0",
        contract("histories.py:MovingAverage", **_step("step", "int64", 0)),
        inconclusive("determinism", "keeps state in its buffers (average)"),
    ),
    Trap(
        "largest value of all calls",
        "the first value is larger than those of the example",
        contract("histories.py:LargestValue", DYNAMO),
        inconclusive("determinism", "change the buffer 'largest'"),
    ),
    Trap(
        "ring buffer by a draft",
        "the draft keeps the place of the example",
        contract("histories.py:RingBuffer", DYNAMO, capture="draft", **_POSITION),
        inconclusive("determinism", "keeps state in its buffers (ring)"),
    ),
    _keep("a global variable", "GlobalValue", ", which change the global variable '_KEPT'"),
    _keep("a class", "ClassValue", ", which change the class attribute 'ClassValue.mean'"),
    _keep("a closure", "ClosureValue", ", which change the attribute 'offset'"),
    _keep("a cache", "CacheValue", ", which change the global variable '_compute_mean'"),
    _keep("a buffer", "BufferValue", ", which change the buffer 'mean'"),
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
