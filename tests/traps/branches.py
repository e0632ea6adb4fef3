"""Traps: branches on sizes, and operators that are wrong at single sizes."""

from __future__ import annotations

from exporter.manifest import Axis
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    Trap,
    contract,
    declare,
    declare_input,
    declare_output,
    make_fill,
    parity,
    traps,
)


def _declare_lines(**length: object) -> dict[str, object]:
    return {
        "inputs": (declare_input("x", "batch", 4, "length"),),
        "outputs": (declare_output("y", "batch", 4, "length"),),
        "axes": (
            Axis(name="batch", example=3),
            Axis.model_validate({"name": "length", "example": 5} | length),
        ),
    }


_RESIZED = {**_declare_lines(), "outputs": (declare_output("y", "batch", 4, 64),)}
_DOUBLED = declare("x [batch, 4, length=5] -> y [batch, 4, twice]")
_PICTURE = declare("x [2, height=5, width=7] -> y [2, height, width]")
_PAIR = declare("q [2, queries=5], k [2, keys=7] -> y [2, queries]")
_BATCH = {"axes": (Axis(name="batch", example=3, max=128),)}


_IMAGE = {
    "inputs": (declare_input("x", "batch", 3, "height", "width", fill=make_fill("uniform")),),
    "outputs": (declare_output("y", "batch", 3, "height", "width"),),
    "axes": (
        Axis(name="batch", example=2),
        Axis(name="height", example=16),
        Axis(name="width", example=16),
    ),
}
_TOKENS = {
    "inputs": (
        declare_input("x", "batch", 6, dtype="int64", fill=make_fill("randint", low=0, high=10)),
    ),
    "outputs": (declare_output("y", "batch", "steps", dtype="int64"),),
    "axes": (Axis(name="batch", example=3), Axis(name="steps", example=None)),
}


def _roll(smallest: int) -> dict[str, object]:
    return {
        "inputs": (declare_input("x", "batch", "length"),),
        "outputs": (declare_output("y", "batch", "length"),),
        "axes": (
            Axis(name="batch", example=3),
            Axis(name="length", example=7, min=smallest, max=16),
        ),
    }


def _trap_quiet(name: str, source: str, message: str, **changes: object) -> tuple[Trap, Trap]:
    """Return a trap of which the tracer does not warn, and its sound twin."""
    path, other = f"branches.py:{source}", {"init": {"other": 3.0}}
    return (
        Trap(
            name,
            "the tracer does not warn",
            contract(path, **other, **changes),
            parity("axes", message),
        ),
        Trap(f"{name} without effect", "both branches are equal", contract(path, **changes)),
    )


def _trap_both(
    name: str, story: str, source: str, message: str = "", **changes: object
) -> tuple[Trap, Trap]:
    """Return a trap for each exporter; without a message the model is sound."""
    verdict = parity("axes", message) if message else SOUND
    return traps(name, story, f"branches.py:{source}", verdict, **changes)


BRANCHES = (
    *_trap_both("branch for multiples of 8", "a trace has one branch", "Aligned", "=16: output"),
    *_trap_both("padding to multiples of 8", "the same at all sizes", "AlignedAlike"),
    *_trap_both(
        "branch for squares", "two axes may be equal", "Square", "output 'y': error", **_PICTURE
    ),
    *_trap_both("branch for squares without effect", "one function", "SquareAlike", **_PICTURE),
    *_trap_both(
        "branch for equal lengths",
        "axes of two inputs may be equal",
        "SameLength",
        "output 'y': error",
        **_PAIR,
    ),
    *_trap_both("branch for equal lengths without effect", "one function", "AnyLength", **_PAIR),
    *_trap_both(
        "branch for a middle range",
        "20 < batch < 100, and 128 promised: the first and the last size have one branch",
        "Middle",
        "output 'y': error",
        **_BATCH,
    ),
    *_trap_both("branch for a middle range without effect", "same", "MiddleAlike", **_BATCH),
    *_trap_both(
        "branch for two sizes of 1",
        "each axis alone at 1 has the other branch",
        "Alone",
        "rows=1 columns=1: output 'y': error",
        inputs=(declare_input("x", "rows", "columns"),),
        outputs=(declare_output("y", "rows", "columns"),),
        axes=(Axis(name="rows", example=3), Axis(name="columns", example=5)),
    ),
    Trap(
        "roll by more than the size",
        "the slices of the file do not wrap around twice",
        contract("branches.py:Rolled"),
        parity("axes", "batch=2: output 'y': error"),
    ),
    Trap(
        "roll by more than the size under dynamo",
        "dynamo writes the remainder of the size",
        contract("branches.py:Rolled", DYNAMO),
    ),
    Trap("roll by a remainder", "the same with indices", contract("branches.py:RolledWithin")),
    Trap(
        "pair of strided convolutions",
        "odd lengths stay, and the trace lacks the padding of even ones",
        contract("branches.py:Mirrored", **_declare_lines()),
        parity("axes", "length=2"),
    ),
    *_trap_both(
        "pair of strided convolutions, cut",
        "one more element, cut at each length",
        "MirroredCut",
        **_declare_lines(),
    ),
    Trap(
        "nearest elements at single sizes",
        "the runtime rounds other positions at the size 14",
        contract("branches.py:Nearest", **_RESIZED),
        parity("axes", "length=14"),
    ),
    Trap(
        "nearest elements of twice the size",
        "a factor of 2 needs no rounding",
        contract("branches.py:NearestDoubled", **_DOUBLED),
    ),
    *_trap_both(
        "branch for long inputs",
        "the captured program has the condition `n <= 30`, the trace none, and 31 is promised",
        "Long",
        "batch=31: output 'y': error",
    ),
    *_trap_both("branch for long inputs without effect", "same", "LongAlike"),
    *_trap_both(
        "branch for long inputs that are not promised",
        "30 is the largest size",
        "Long",
        axes=(Axis(name="batch", example=3, max=30),),
    ),
    *_trap_both(
        "branch for one remainder",
        "the first size with the other branch is 19",
        "Remainder",
        "batch=19: output 'y': error",
    ),
    *_trap_both(
        "branch for a rounded root",
        "the condition is no node of the captured program",
        "Root",
        "output 'y': error",
    ),
    *_trap_both("branch for a rounded root without effect", "same", "RootAlike"),
    *_trap_both(
        "branch that returns the input",
        "no node of the captured program needs the condition",
        "Unchanged",
        "batch=48: output 'y': error",
    ),
    *_trap_both(
        "branch for a number of the module",
        "the number is 200, far from all usual sizes",
        "OwnLimit",
        "batch=201: output 'y': error",
    ),
    *_trap_quiet("branch for the bytes of a tensor", "Bytes", "batch=4097: output 'y'"),
    *_trap_quiet("branch of a model with many weights", "LargeBytes", "batch=4097: output 'y'"),
    *_trap_quiet("branch for a number of a configuration", "Configured", "batch=209: output 'y'"),
    *_trap_quiet("branch for a number of the file", "GlobalLimit", "batch=310: output 'y'"),
    *_trap_quiet("branch for the largest of many numbers", "ManyNumbers", "batch=451: output 'y'"),
    *_trap_quiet("branch of a model that its trace changes", "ChangedByTrace", "batch=4097"),
    *_trap_quiet("branch for the unbound rows", "Unbound", "batch=21: output 'y'"),
    *_trap_quiet("branch for the brightest element", "Brightest", "output 'y': error", **_IMAGE),
    Trap(
        "decoder that ends early",
        "few draws have the end token in each row, and the trace has all steps",
        contract("branches.py:EarlyStop", init={"end": -0.1}, **_TOKENS),
        parity("values", "at batch=1: output 'y': shape"),
    ),
    Trap(
        "decoder that never ends early",
        "the end token is never the best one",
        contract("branches.py:EarlyStop", init={"end": -100.0}, **_TOKENS),
    ),
    Trap(
        "roll back by more than one of the sizes",
        "the slices of the file are wrong at the length 3 only",
        contract("branches.py:RolledBack", **_roll(1)),
        parity("axes", "length=3: output 'y': error"),
    ),
    Trap(
        "roll back by less than all sizes",
        "4 is the smallest size",
        contract("branches.py:RolledBack", **_roll(4)),
    ),
    Trap(
        "branch for twice the size under dynamo",
        "a condition on two axes",
        contract("branches.py:Doubled", DYNAMO, **_PICTURE),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "length that the model rejects under dynamo",
        "PyTorch itself fails at a size that breaks a condition: the promise is unsound",
        contract("branches.py:Bounded", DYNAMO),
        parity("axes", "PyTorch itself fails on batch=31"),
    ),
)
