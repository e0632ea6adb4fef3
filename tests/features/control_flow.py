"""Loops, branches and lists: captured, traced, scripted, and mixed."""

from __future__ import annotations

from collections.abc import Callable

from exporter.records.record import Stage
from tests.features.feature import (
    SOUND,
    Feature,
    Proof,
    Referred,
    Section,
    Support,
    parity,
    refused,
    structure,
)

_SCRIPT = 'exporter = "torchscript"\ncapture = "script"\n'
_COUNT = """
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "n", shape = [], dtype = "int64", fill = { value = 5 } },
]
cases = [{ name = "none", values = { n = 0 } }, { name = "nine", values = { n = 9 } }]
"""
#: Two rows on each side of a branch on the sum.
_SIDES = """
axes.batch = { example = 2 }
cases = [
  { name = "above", values = { x = [[1, 2, 3, 4], [1, 2, 3, 4]] } },
  { name = "below", values = { x = [[-1, -2, -3, -4], [1, 2, 3, -140]] } },
]
"""
#: Another number of repetitions than in the example.
_TURNS = """
axes.batch = { example = 2 }
cases = [{ name = "large", values = { x = [[900, 1, 1, 1], [1, 1, 1, 1]] } }]
"""
_LONGER = 'outputs = [{ name = "y", shape = ["rows", 4] }]\n'
_DYNAMO_REFUSES = refused(Stage.CAPTURE, "data-dependent expression")
_NO_TRACE_OF_DYNAMO = refused(Stage.CONVERT, "torch.jit.trace a dynamo-optimized function")


def _has(operator: str, opset: int) -> Callable[[Proof], bool]:
    return lambda proof: operator in proof.operators(opset)


CAPTURED = (
    Feature(
        name="torch.cond",
        api="torch.cond(pred, true_fn, false_fn, operands)",
        torch="2.6+",
        model="control_flow.py:Cond",
        lines=f'opsets = "18..21"\n{_SIDES}',
        support=Support.DYNAMO,
        facts={"an If with both branches is in the file": _has("If", 18)},
    ),
    Feature(
        name="torch.cond in a torch.cond",
        api="torch.cond",
        torch="2.6+",
        model="control_flow.py:CondNested",
        lines="opsets = [18]",
        rest=_SIDES,
        support=Support.DYNAMO,
        facts={"two Ifs": lambda proof: proof.operators(18).count("If") == 2},
    ),
    Feature(
        name="torch.cond between layers",
        api="torch.cond",
        torch="2.6+",
        model="control_flow.py:Weighted",
        lines="opsets = [18]",
        rest=_SIDES,
        support=Support.DYNAMO,
    ),
    Feature(
        name="torch.cond with its branches exchanged",
        api="torch.cond",
        torch="2.6+",
        model="control_flow.py:CondTurned",
        lines="opsets = [18]",
        rest=_SIDES,
        verdicts={"*": parity("parity", "output 'y': error")},
        note="The model takes the other way while it is exported.",
    ),
    Feature(
        name="torch.cond under TorchScript",
        api="torch.cond",
        torch="2.6+",
        model="control_flow.py:Cond",
        lines="opsets = [13]",
        rest=_SIDES,
        verdicts={"*": _NO_TRACE_OF_DYNAMO},
        by_command=True,  # after another torch.cond in the process, dynamo refuses its eager call
    ),
    Feature(
        name="while_loop",
        api="torch._higher_order_ops.while_loop",
        torch="2.10+",
        model="control_flow.py:WhileLoop",
        lines=f"opsets = [13, 18, 21]\n{_COUNT}",
        verdicts={"<18": _NO_TRACE_OF_DYNAMO, ">=18": SOUND},
        facts={"a Loop is in the file": _has("Loop", 18)},
    ),
    Feature(
        name="while_loop over methods, as in its documentation",
        api="torch._higher_order_ops.while_loop",
        torch="2.10+",
        model="control_flow.py:DocumentedWhileLoop",
        lines="""
inputs = [
  { name = "count", shape = [1], dtype = "int64", fill = { value = [3] } },
  { name = "x", shape = [3] },
]
""",
        rest="""
opsets = [18]
outputs = [
  { name = "left", shape = [1], dtype = "int64" },
  { name = "y", shape = [3] },
]
cases = [{ name = "nine", values = { count = [9] } }]
""",
        support=Support.DYNAMO,
    ),
    Feature(
        name="scan",
        api="torch._higher_order_ops.scan",
        torch="2.8+",
        model="control_flow.py:Scan",
        lines="opsets = [13, 18, 21]",
        verdicts={"<18": _NO_TRACE_OF_DYNAMO, ">=18": SOUND},
        facts={"a Scan is in the file": _has("Scan", 18)},
    ),
    Feature(
        name="a choice by torch.where",
        api="torch.where",
        torch="1.0+",
        model="control_flow.py:Chosen",
        lines="opsets = [9, 13, 18]",
        note="Both ways are computed. The only choice that both exporters keep.",
    ),
)

SCRIPTED = (
    Feature(
        name="loop over an input, scripted",
        api="torch.jit.script",
        torch="1.2+",
        model="control_flow.py:Loop",
        lines=_SCRIPT,
        rest=f"opsets = [9, 13, 20]\n{_COUNT}",
        support=Support.TORCHSCRIPT,
        facts={"a Loop is in the file": _has("Loop", 13)},
    ),
    Feature(
        name="loop until a value, scripted",
        api="torch.jit.script",
        torch="1.2+",
        model="control_flow.py:Until",
        lines=_SCRIPT,
        rest=f"opsets = [9, 13, 20]\n{_TURNS}",
        support=Support.TORCHSCRIPT,
    ),
    Feature(
        name="break out of a loop, scripted",
        api="torch.jit.script",
        torch="1.2+",
        model="control_flow.py:Break",
        lines=_SCRIPT,
        rest=f"opsets = [9, 13, 20]\n{_COUNT}",
        support=Support.TORCHSCRIPT,
    ),
    Feature(
        name="branch on a value, scripted",
        api="torch.jit.script",
        torch="1.2+",
        model="control_flow.py:Branch",
        lines=_SCRIPT,
        rest=f"opsets = [9, 13, 20]\n{_SIDES}",
        support=Support.TORCHSCRIPT,
        facts={"an If is in the file": _has("If", 13)},
    ),
    Feature(
        name="scripted loop in a traced module",
        api="torch.jit.script, called by a traced module",
        torch="1.2+",
        model="control_flow.py:Mixed",
        lines='exporter = "torchscript"',
        rest=f"opsets = [9, 13, 20]\n{_COUNT}",
        support=Support.TORCHSCRIPT,
        facts={"the loop is kept, the rest is traced": _has("Loop", 13)},
    ),
    Feature(
        name="scripted loop in a module that dynamo captures",
        api="torch.jit.script, called by a captured module",
        torch="2.5+",
        model="control_flow.py:Mixed",
        lines="opsets = [18]",
        rest=_COUNT,
        verdicts={"*": _DYNAMO_REFUSES},
        note="torch.export runs the scripted function as Python; `torch.cond` and `while_loop` are "
        "its own way.",
    ),
    Feature(
        name="traced module in a scripted loop",
        api="torch.jit.trace, called by a scripted module",
        torch="1.2+",
        model="control_flow.py:traced_in_script",
        lines='exporter = "torchscript"\nopsets = [13, 20]',
        support=Support.TORCHSCRIPT,
        facts={
            "the loop is kept, the branch inside the trace is not": lambda proof: (
                "Loop" in proof.operators(13) and "If" not in proof.operators(13)
            )
        },
        note="Green, because PyTorch also runs the traced inner module. Script the inner module "
        "if the branch matters.",
    ),
    Feature(
        name="scripted module in a scripted loop",
        api="torch.jit.script",
        torch="1.2+",
        model="control_flow.py:scripted_in_script",
        lines='exporter = "torchscript"\nopsets = [9, 13, 20]',
        support=Support.TORCHSCRIPT,
        verdicts={"9": refused(Stage.CONVERT, "was added in version 11"), "*": SOUND},
        facts={
            "loop and branch are kept": lambda proof: {"Loop", "If"} <= set(proof.operators(13))
        },
    ),
)

LISTS = (
    Feature(
        name="list that grows in a scripted loop",
        api="list.append, torch.cat",
        torch="1.5+",
        model="control_flow.py:Collected",
        lines=f"{_SCRIPT}opsets = [10, 11, 13, 20]\n{_LONGER}",
        rest=_COUNT,
        support=Support.TORCHSCRIPT,
        verdicts={
            "10": refused(Stage.CONVERT, "was added in version 11"),
            "11": structure("wellformed", "sequence_type"),
            "*": SOUND,
        },
        facts={"the list is a sequence in the graph": _has("SequenceInsert", 13)},
        note="Sequences came with opset 11, but a Loop carries them from 13 on only: the file of "
        "11 is not well-formed.",
    ),
    Feature(
        name="list of a fixed length",
        api="torch.stack of a Python list",
        torch="1.0+",
        model="control_flow.py:Fixed",
        rest='opsets = [9, 13, 18]\noutputs = [{ name = "y", shape = ["batch", 3, 4] }]',
    ),
    Feature(
        name="list with one item per row",
        api="Tensor.unbind, torch.stack",
        model="control_flow.py:Unbound",
        lines="opsets = [13, 18]",
        verdicts={
            "<18": parity("axes", "Cannot split"),
            ">=18": refused(Stage.CAPTURE, "inferred a static shape"),
        },
        note="A trace has as many items as its example has rows.",
    ),
    Feature(
        name="list with one item per row, scripted",
        api="Tensor.unbind, torch.stack",
        model="control_flow.py:Unbound",
        lines=f"{_SCRIPT}opsets = [13, 20]",
        verdicts={"*": structure("signature", "declared [batch, 4]")},
        note="The file declares three dimensions and ONNX Runtime returns two. Use `x[index]` in "
        "a loop instead, as in the row above on a scripted module in a scripted loop.",
    ),
    Feature(
        name="list of tuples, scripted",
        api="list.append of a tuple",
        torch="1.5+",
        model="control_flow.py:Pairs",
        lines=f"{_SCRIPT}opsets = [9, 13, 20]",
        rest=_COUNT,
        verdicts={"*": refused(Stage.CONVERT, "Couldn't lower all tuples")},
    ),
)

TRACED = (
    Feature(
        name="loop over an input, traced",
        api="export(model, args)",
        torch="1.0+",
        model="control_flow.py:Loop",
        rest=_COUNT,
        verdicts={"<18": parity("cases", "none: output 'y'"), ">=18": _DYNAMO_REFUSES},
    ),
    Feature(
        name="branch on a value, traced",
        api="export(model, args)",
        torch="1.0+",
        model="control_flow.py:Branch",
        rest=_SIDES,
        verdicts={"<18": parity("axes", "output 'y': error"), ">=18": _DYNAMO_REFUSES},
    ),
    Feature(
        name="break out of a loop, traced",
        api="export(model, args)",
        torch="1.0+",
        model="control_flow.py:Break",
        rest=_COUNT,
        verdicts={
            "<18": structure("signature", "the graph ignores input"),
            ">=18": _DYNAMO_REFUSES,
        },
        note="The input that only counts turns is no input of the trace.",
    ),
    Referred(
        name="more that a trace loses",
        api="export(model, args)",
        torch="1.0+",
        traps=(
            "while over values",
            "branch that only a case takes",
            "branch on a flag",
            "Python loop over rows",
            "Python loop over rows under dynamo",
        ),
    ),
    Feature(
        name="another way in an export",
        api="is_in_onnx_export()",
        model="control_flow.py:DoubledByAddition",
        lines="opsets = [13, 18]",
        facts={
            "the branch for exports is in the files": lambda proof: all(
                "Add" in proof.operators(opset) for opset in (13, 18)
            )
        },
    ),
    Feature(
        name="another way in an export that computes something else",
        api="is_in_onnx_export()",
        model="control_flow.py:NearlyDoubled",
        lines="opsets = [13, 18]",
        verdicts={"*": parity("parity", "output 'y': error")},
    ),
)

SECTION = Section(
    name="Control flow",
    text='A trace keeps the turns and branches of its example, `capture = "script"` keeps loops '
    "and branches, and dynamo keeps those that are written as operators. Cases take the other "
    "branch and other counts, so that a lost one is red.",
    rows=(*CAPTURED, *SCRIPTED, *LISTS, *TRACED),
)
