"""Traps: a value of the example that stays in the file.

Output: `VALUES`.
"""

from __future__ import annotations

from exporter.manifest import Case, Fill
from exporter.records.record import Stage
from tests.traps.trap import (
    DYNAMO,
    SOUND,
    Trap,
    contract,
    declare_input,
    declare_output,
    make_fill,
    parity,
    refused,
    structure,
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
_HOT = Case(name="hot", fills={"x": Fill(kind="uniform", low=200.0, high=300.0)})

VALUES = (
    Trap(
        name="loop count baked in",
        story="a trace turns as often as its example did",
        spec=contract("values.py:LoopCount", **_COUNTED),
        verdict=parity("values", "other n: output 'y': error"),
    ),
    Trap(
        name="loop count the only use",
        story="a trace does not know an input that only counts turns",
        spec=contract("values.py:OnlyCounted", **_COUNTED),
        verdict=structure("signature", "inputs differ: the file has 1 (x), declared 2 (x, n)"),
    ),
    Trap(
        name="loop over a value under dynamo",
        story="torch.export refuses a loop with a count from a value",
        spec=contract("values.py:LoopCount", DYNAMO, **_COUNTED),
        verdict=refused(Stage.CAPTURE, "data-dependent expression"),
    ),
    Trap(
        name="loop by script",
        story="a scripted loop runs the requested number of times",
        spec=contract(
            "values.py:ScriptedLoop",
            cases=(Case(name="none", fills={"n": Fill(kind="value", value=0)}),),
            **_COUNTED,
        ),
        verdict=SOUND,
    ),
    Trap(
        name="while over values",
        story="a trace halves as often as its example needed",
        spec=contract(
            "values.py:WhileLoop",
            cases=(
                Case(
                    name="large", fills={"x": Fill(kind="value", value=[[9.0, 1.0, 1.0, 1.0]] * 3)}
                ),
            ),
        ),
        verdict=parity("cases", "large: output 'y': error"),
    ),
    Trap(
        name="branch on a sum",
        story="a trace keeps the branch of its example",
        # Other sizes have other values, and the check `axes` runs first.
        spec=contract("values.py:BranchOnSum"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="branch on an element",
        story="a trace keeps the branch of its example",
        spec=contract(
            "values.py:BranchOnElement",
            inputs=(declare_input("x", 3, 4),),
            outputs=(declare_output("y", 3, 4),),
            axes=(),
        ),
        verdict=parity("values", "other x: output 'y': error"),
    ),
    Trap(
        name="branch on a value under dynamo",
        story="torch.export refuses to branch on a value",
        spec=contract("values.py:BranchOnSum", DYNAMO),
        verdict=refused(Stage.CAPTURE, "data-dependent expression"),
    ),
    Trap(
        name="branch that only a case takes",
        story="no noise reaches 100; the manifest's case does",
        spec=contract(
            "values.py:RareBranch",
            cases=(
                Case(
                    name="hot", fills={"x": Fill(kind="value", value=[[200.0, 1.0, 1.0, 1.0]] * 3)}
                ),
            ),
        ),
        verdict=parity("cases", "hot: output 'y': error"),
    ),
    Trap(
        name="branch that only the fill of a case takes",
        story="no noise reaches 100; the fill of the manifest's case does",
        spec=contract("values.py:RareBranch", cases=(_HOT,)),
        verdict=parity("cases", "hot: output 'y': error"),
    ),
    Trap(
        name="choice that only the fill of a case takes",
        story="`torch.where` chooses again for the values of the case",
        spec=contract("values.py:RareChoice", cases=(_HOT,)),
        verdict=SOUND,
    ),
    Trap(
        name="branch on a flag",
        story="a flag that Python reads is no input of a trace",
        spec=contract("values.py:FlagOnly", inputs=(declare_input(), _FLAG)),
        verdict=structure("signature", "inputs differ: the file has 1 (x), declared 2 (x, flag)"),
    ),
    Trap(
        name="branch on a mask",
        story="the other branch uses the mask, and the file never takes it",
        spec=contract("values.py:Gate", inputs=(declare_input(), _MASK)),
        verdict=structure("signature", "inputs differ"),
    ),
    Trap(
        name="choice inside the graph",
        story="`torch.where` chooses again for each input",
        spec=contract("values.py:Selected"),
        verdict=SOUND,
    ),
    Trap(
        name="choice inside the graph under dynamo",
        story="`torch.where` chooses again for each input",
        spec=contract("values.py:Selected", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name=".item() baked in",
        story="a number that Python read out is a constant of the trace",
        spec=contract("values.py:ItemRead"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name=".item() at one size",
        story="the same without an axis that would give it away",
        spec=contract(
            "values.py:ItemRead",
            inputs=(declare_input("x", 3, 4),),
            outputs=(declare_output("y", 3, 4),),
            axes=(),
        ),
        verdict=parity("values", "other x: output 'y': error"),
    ),
    Trap(
        name=".item() under dynamo",
        story="torch.export keeps the number as a symbol",
        spec=contract("values.py:ItemRead", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="the same number as a tensor",
        story="a value that stays a tensor stays in the graph",
        spec=contract("values.py:ItemKept"),
        verdict=SOUND,
    ),
    Trap(
        name="numpy constant",
        story="a result of numpy is a constant of the trace",
        spec=contract("values.py:NumpyMean"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="numpy under dynamo",
        story="strict capture translates numpy, which the first capture does not",
        spec=contract("values.py:NumpyMean", DYNAMO),
        verdict=SOUND,
    ),
    Trap(
        name="numpy under dynamo without strict capture",
        story="torch.export has no numpy",
        spec=contract("values.py:NumpyMean", DYNAMO, capture="export"),
        verdict=refused(Stage.CAPTURE, ""),
    ),
    Trap(
        name="list constant",
        story="values that went through a list are constants of the trace",
        spec=contract("values.py:ListConstant"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="float() baked in",
        story="`torch.tensor(float(t))` is a constant of the trace",
        spec=contract("values.py:ConvertedTensor"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="Tensor.data read",
        story="`.data` is not traced: its results are constants",
        spec=contract("values.py:DataRead"),
        verdict=parity("axes", "output 'y': error"),
    ),
    Trap(
        name="Tensor.data written",
        story="a write by `.data` is not traced",
        spec=contract("values.py:DataWritten"),
        verdict=parity("parity", "output 'y': error"),
    ),
    Trap(
        name="size read from a value",
        story="a slice ends where the example's did",
        spec=contract("values.py:SizeByValue", **_COUNTED),
        verdict=parity("values", "other n: output 'y': error"),
    ),
    Trap(
        name="number of the last row baked in",
        story="there is no row after it: the input selects the one before it",
        spec=contract(
            "values.py:LastRow",
            inputs=(declare_input(), _COUNT),
            outputs=(declare_output("y", "batch"),),
        ),
        verdict=parity("values", "other n: output 'y': error"),
    ),
    Trap(
        name="integers divided",
        story="negative integers round down in PyTorch, and towards 0 in TorchScript's graph",
        spec=contract("values.py:Remainders", **_INTEGERS),
        verdict=parity("parity", "elements differ"),
    ),
    Trap(
        name="integers divided under dynamo",
        story="they round down",
        spec=contract("values.py:Remainders", DYNAMO, **_INTEGERS),
        verdict=SOUND,
    ),
)
