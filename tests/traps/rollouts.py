"""Traps: recurrent files in a loop, in which each step gets the file's own outputs."""

from __future__ import annotations

from exporter.manifest import Axis, Input, Output, Rollout, Tolerance
from exporter.manifest.resolved.call import SizeRule
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    TORCHSCRIPT,
    Trap,
    Verdict,
    contract,
    declare,
    declare_input,
    declare_output,
    failed,
    inconclusive,
    make_fill,
    parity,
)

_UNIT = make_fill("uniform")


def _loop(
    name: str,
    story: str,
    net: str,
    inputs: tuple[Input, ...],
    outputs: tuple[Output, ...],
    verdict: Verdict = SOUND,
    *,
    feeds: dict[str, str],
    opset: int = TORCHSCRIPT,
    steps: int = 16,
    constants: dict[str, str] | None = None,
    loop: str | None = None,
    **fields: object,
) -> Trap:
    spec = contract(
        f"rollouts.py:{net}",
        opset,
        inputs=inputs,
        outputs=outputs,
        rollout=Rollout(steps=steps, feeds=feeds, constants=constants or {}, loop=loop),
        **fields,
    )
    return Trap(name, story, spec, verdict)


_LSTM = declare(
    "x [batch, 4], h [batch, 6], c [batch, 6] -> y [batch, 4], h1 [batch, 6], c1 [batch, 6]"
)
_STATE = {
    "inputs": (declare_input("h", "batch", 2, fill=_UNIT),),
    "outputs": (declare_output("y", "batch", 2), declare_output("h1", "batch", 2)),
    "feeds": {"h1": "h"},
}
_WORDS = {
    "inputs": (
        declare_input("token", "batch", dtype="int64", fill=make_fill("randint", high=20)),
        declare_input("count", "batch", at="args[1]", fill=_UNIT),
    ),
    "outputs": (declare_output("logits", "batch", 20), declare_output("next", "batch")),
    "feeds": {"logits": "token", "next": "count"},
}
_STATES = {"h1": "h", "c1": "c"}
_FUNCTIONS = "tests/traps/models/rollouts.py"
_DENOISER = {
    "inputs": (
        declare_input("sample", "batch", 4),
        # The first step has the largest one, but no call has it.
        declare_input(
            "timestep", "batch", dtype="int64", at="args[1]", fill=make_fill("randint", high=3)
        ),
        declare_input("scale", at="args[2]", fill=_UNIT),
    ),
    "outputs": (declare_output("next", "batch", 4),),
    "feeds": {"next": "sample"},
    "constants": {
        "timestep": f"{_FUNCTIONS}:list_timesteps",
        "scale": f"{_FUNCTIONS}:list_scales",
    },
    "steps": 8,
}

ROLLOUTS = (
    _loop("rollout: LSTM", "two states", "Lstm", **_LSTM, feeds=_STATES, steps=32),
    _loop("rollout: LSTM under dynamo", "two states", "Lstm", **_LSTM, feeds=_STATES, opset=DYNAMO),
    _loop(
        "rollout: exchanged states",
        "the loop itself is another one, in both",
        "Lstm",
        **_LSTM,
        feeds={"h1": "c", "c1": "h"},
    ),
    _loop("rollout: counter", "a state that leaves its usual range", "Counter", **_STATE),
    _loop(
        "rollout: counter with another end",
        "only a loop reaches the state at which the file is wrong",
        "Counter",
        **_STATE,
        verdict=parity("rollout", "of 16: output 'y': error"),
        init={"end": 12.0},
    ),
    _loop(
        "rollout: an unstable state",
        "the same growth in both",
        "Unstable",
        **_STATE,
        tolerance=Tolerance(atol=0.01, rtol=0.0),
        steps=8,
    ),
    _loop(
        "rollout: drift",
        "an error within the tolerance of one call, which grows",
        "Unstable",
        **_STATE,
        verdict=parity("rollout", "of 16: output '"),
        tolerance=Tolerance(atol=0.01, rtol=0.0),
        init={"error": 0.001},
    ),
    _loop("rollout: greedy tokens", "the logits select the next token", "Words", **_WORDS),
    _loop(
        "rollout: another token",
        "the file selects another token in a late step",
        "Words",
        **_WORDS,
        verdict=parity("rollout", "of 16: the file selects token"),
        init={"end": 12.0},
    ),
    _loop(
        "rollout: too few equal tokens",
        "a share of the tokens is promised, and the file selects others in late steps",
        "Words",
        **_WORDS,
        verdict=parity("rollout", "tokens are PyTorch's, a share of"),
        init={"end": 12.0},
        tokens=0.95,
    ),
    _loop(
        "rollout: enough equal tokens",
        "a file with smaller differences keeps the share",
        "Words",
        **_WORDS,
        init={"end": 8.01},
        tokens=0.8,
    ),
    _loop(
        "rollout: a share that a constant keeps",
        "the promise is as small as the share of the most frequent token",
        "Words",
        **_WORDS,
        verdict=inconclusive("rollout", "a file that always selects token"),
        init={"end": 12.0},
        tokens=0.05,
    ),
    _loop(
        "rollout: a cache that grows",
        "the mask grows with it",
        "Cache",
        inputs=(
            declare_input("x", "batch", 1, 4),
            declare_input("past", "batch", "past", 4, at="args[1]"),
            declare_input("mask", "batch", "total", at="args[2]", fill=make_fill("ones")),
        ),
        outputs=(
            declare_output("y", "batch", 1, 4),
            declare_output("present", "batch", "total", 4),
        ),
        feeds={"present": "past"},
        axes=(
            Axis(name="batch", example=3),
            Axis(name="past", example=5),
            Axis(name="total", example=6, rule=SizeRule(kind="sum", operands=("past", 1))),
        ),
        opset=DYNAMO,
    ),
    _loop(
        "rollout: an output without effect",
        "every step is the same",
        "Ignoring",
        inputs=(declare_input(), declare_input("h", "batch", 4, at="args[1]")),
        outputs=(declare_output("y", "batch", 4), declare_output("h1", "batch", 4)),
        verdict=inconclusive("rollout", "every step of PyTorch has the same outputs"),
        feeds={"h1": "h"},
    ),
    _loop(
        "rollout: a state of another size",
        "PyTorch rejects its own output",
        "Growing",
        inputs=(declare_input("h", "batch", 4),),
        outputs=(declare_output("h1", "batch", 8),),
        verdict=failed(Stage.SOURCE, "rollout: PyTorch fails at step 2"),
        feeds={"h1": "h"},
    ),
    _loop("rollout: a step index", "each step has another one", "Denoiser", **_DENOISER),
    _loop(
        "rollout: a step index under dynamo",
        "PyTorch's own loop has the same last sample",
        "Denoiser",
        **_DENOISER,
        loop=f"{_FUNCTIONS}:denoise",
        opset=DYNAMO,
    ),
    _loop(
        "rollout: a step index with another end",
        "no single call has the step index at which the file is wrong",
        "Denoiser",
        **_DENOISER,
        verdict=parity("rollout", "; the file ignores 'timestep': its outputs are those for"),
        init={"limit": 3},
    ),
    _loop(
        "rollout: a step index that is a constant",
        "`int` of it, which single calls show, too",
        "Denoiser",
        **_DENOISER,
        verdict=parity("values", "other timestep: output 'next': error"),
        init={"reads_number": True},
    ),
    _loop(
        "rollout: another order of the steps",
        "the steps of PyTorch's own loop begin at the other end",
        "Denoiser",
        **_DENOISER,
        loop=f"{_FUNCTIONS}:denoise_forward",
        verdict=failed(Stage.SOURCE, "rollout: step 1 of 8: output 'next' differs from "),
    ),
)
