"""Traps: a value of the example that stays in the file."""

from __future__ import annotations

from exporter.manifest import Case, Fill
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    Trap,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
    refused,
    structure,
    traps,
)

_COUNT = declare_input("n", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=3))
_FLAG = declare_input(
    "flag", at="args[1]", shape=(), dtype="bool", fill=make_fill("value", value=True)
)
_MASK = declare_input("mask", at="args[1]", shape=(4,), dtype="bool", fill=make_fill("ones"))
_COUNTED = {"inputs": (declare_input(), _COUNT)}
_INTEGERS = {
    "inputs": (declare_input(dtype="int64", fill=make_fill("randint", low=-50, high=50)),),
    "outputs": (declare_output("y", "batch", 4, dtype="int64"),),
}
_ROW = {"inputs": (declare_input("x", 4, fill=make_fill("value", value=[9.0, 1.0, 1.0, 2.0])),)}
_BOUNDARIES = declare_input("b", 3, at="args[1]", fill=make_fill("value", value=[0.5, 1.0, 2.0]))
_OFFSETS = make_fill("value", value=[0, 2, 5])
_HOT = Case(name="hot", fills={"x": Fill(kind="uniform", low=200.0, high=300.0)})

VALUES = (
    Trap(
        "loop count baked in",
        "a trace turns as often as its example did",
        contract("values.py:LoopCount", **_COUNTED),
        parity("values", "other n: output 'y': error"),
    ),
    Trap(
        "loop count the only use",
        "a trace does not know an input that only counts turns",
        contract("values.py:OnlyCounted", **_COUNTED),
        structure("signature", "the file has 1 (x), declared 2 (x, n)"),
    ),
    Trap(
        "loop over a value under dynamo",
        "torch.export refuses a loop with a count from a value",
        contract("values.py:LoopCount", DYNAMO, **_COUNTED),
        refused(Stage.CAPTURE, "data-dependent expression"),
    ),
    Trap(
        "loop by script",
        "a scripted loop runs the requested number of times",
        contract(
            "values.py:ScriptedLoop",
            cases=(Case(name="none", fills={"n": Fill(kind="value", value=0)}),),
            **_COUNTED,
        ),
    ),
    Trap(
        "while over values",
        "a trace halves as often as its example needed",
        contract(
            "values.py:WhileLoop",
            cases=(
                Case(
                    name="large", fills={"x": Fill(kind="value", value=[[9.0, 1.0, 1.0, 1.0]] * 3)}
                ),
            ),
        ),
        parity("cases", "large: output 'y': error"),
    ),
    Trap(
        name="branch on a sum",
        story="a trace keeps the branch of its example",
        # Other sizes have other values, and the check `axes` runs first.
        spec=contract("values.py:BranchOnSum"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        "branch on an element",
        "a trace keeps the branch of its example",
        contract("values.py:BranchOnElement", signature="x [3, 4] -> y [3, 4]"),
        parity("values", "other x: output 'y': error"),
    ),
    Trap(
        "branch on a value under dynamo",
        "torch.export refuses to branch on a value",
        contract("values.py:BranchOnSum", DYNAMO),
        refused(Stage.CAPTURE, "data-dependent expression"),
    ),
    Trap(
        "branch that only a case takes",
        "no noise reaches 100; the manifest's case does",
        contract(
            "values.py:RareBranch",
            cases=(
                Case(
                    name="hot", fills={"x": Fill(kind="value", value=[[200.0, 1.0, 1.0, 1.0]] * 3)}
                ),
            ),
        ),
        parity("cases", "hot: output 'y': error"),
    ),
    Trap(
        "branch that only the fill of a case takes",
        "no noise reaches 100; the fill of the manifest's case does",
        contract("values.py:RareBranch", cases=(_HOT,)),
        parity("cases", "hot: output 'y': error"),
    ),
    Trap(
        "choice that only the fill of a case takes",
        "`torch.where` chooses again for the values of the case",
        contract("values.py:RareChoice", cases=(_HOT,)),
    ),
    Trap(
        "branch on a flag",
        "a flag that Python reads is no input of a trace",
        contract("values.py:FlagOnly", inputs=(declare_input(), _FLAG)),
        structure("signature", "the file has 1 (x), declared 2 (x, flag)"),
    ),
    Trap(
        "branch on a mask",
        "the other branch uses the mask, and the file never takes it",
        contract("values.py:Gate", inputs=(declare_input(), _MASK)),
        structure("signature", "the graph ignores input"),
    ),
    *traps(
        "choice inside the graph",
        "`torch.where` chooses again for each input",
        "values.py:Selected",
    ),
    Trap(
        ".item() baked in",
        "a number that Python read out is a constant of the trace",
        contract("values.py:ItemRead"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        ".item() at one size",
        "the same without an axis that would give it away",
        contract("values.py:ItemRead", signature="x [3, 4] -> y [3, 4]"),
        parity("values", "other x: output 'y': error"),
    ),
    Trap(
        ".item() under dynamo",
        "torch.export keeps the number as a symbol",
        contract("values.py:ItemRead", DYNAMO),
    ),
    Trap(
        "the same number as a tensor",
        "a value that stays a tensor stays in the graph",
        contract("values.py:ItemKept"),
    ),
    Trap(
        "branch on the mean of fixed values",
        "values in another order have the same mean, mirrored values another one",
        contract("values.py:BranchOnMean", signature="x [batch, 4] -> y [4]", axes=(), **_ROW),
        parity("values", "other x: output 'y': error"),
    ),
    Trap(
        "boundaries in rising order",
        "other values of a sorted input are sorted, too",
        contract(
            "values.py:Buckets",
            inputs=(declare_input(), _BOUNDARIES),
            outputs=(declare_output("y", "batch", 4, dtype="int64"),),
        ),
    ),
    Trap(
        "offsets that begin at 0",
        "PyTorch rejects other first offsets, so the other ones change",
        contract(
            "values.py:Bags",
            inputs=(
                declare_input("ids", 6, dtype="int64", fill=make_fill("randint", high=8)),
                declare_input("o", 3, at="args[1]", dtype="int64", fill=_OFFSETS),
            ),
            outputs=(declare_output("y", 3, 4),),
            axes=(),
        ),
    ),
    Trap(
        "numpy constant",
        "a result of numpy is a constant of the trace",
        contract("values.py:NumpyMean"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "numpy under dynamo",
        "strict capture translates numpy, which the first capture does not",
        contract("values.py:NumpyMean", DYNAMO),
    ),
    Trap(
        "numpy under dynamo without strict capture",
        "torch.export has no numpy",
        contract("values.py:NumpyMean", DYNAMO, capture="export"),
        refused(Stage.CAPTURE, ""),
    ),
    Trap(
        "list constant",
        "values that went through a list are constants of the trace",
        contract("values.py:ListConstant"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "float() baked in",
        "`torch.tensor(float(t))` is a constant of the trace",
        contract("values.py:ConvertedTensor"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "Tensor.data read",
        "`.data` is not traced: its results are constants",
        contract("values.py:DataRead"),
        parity("axes", "output 'y': error"),
    ),
    Trap(
        "Tensor.data written",
        "a write by `.data` is not traced",
        contract("values.py:DataWritten"),
        parity("parity", "output 'y': error"),
    ),
    Trap(
        "size read from a value",
        "a slice ends where the example's did",
        contract("values.py:SizeByValue", **_COUNTED),
        parity("values", "other n: output 'y': error"),
    ),
    Trap(
        "number of the last row baked in",
        "there is no row after it: the input selects the one before it",
        contract(
            "values.py:LastRow",
            inputs=(declare_input(), _COUNT),
            outputs=(declare_output("y", "batch"),),
        ),
        parity("values", "other n: output 'y': error"),
    ),
    Trap(
        "integers divided",
        "negative integers round down in PyTorch, and towards 0 in TorchScript's graph",
        contract("values.py:Remainders", **_INTEGERS),
        parity("parity", "elements differ"),
    ),
    Trap(
        "integers divided under dynamo",
        "they round down",
        contract("values.py:Remainders", DYNAMO, **_INTEGERS),
    ),
)
