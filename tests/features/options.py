"""All other arguments of torch.onnx.export."""

from __future__ import annotations

import onnx

from exporter.records.record import Stage
from tests.features.feature import Elsewhere, Feature, Proof, Section, Support, refused, structure

_TORCHSCRIPT = "opsets = 17"
_DYNAMO = "opsets = 18"


def _log(proof: Proof, opset: int) -> str:
    path = proof.folder.parent / proof.record(opset).log
    return path.read_text(encoding="utf-8", errors="replace")


def _has_report(proof: Proof, name: str) -> bool:
    is_noted = f"wrote {name}, in logs/18" in proof.notes(18)
    return is_noted and (proof.folder / "logs" / "18" / name).stat().st_size > 0


def _functions(proof: Proof) -> dict[str, onnx.FunctionProto]:
    return {function.name: function for function in proof.graph(17).functions}


FOLDING = Feature(
    name="constant folding",
    api="export(..., do_constant_folding=False)",
    torch="1.1+, TorchScript",
    model="options.py:Folded",
    rest=_TORCHSCRIPT,
    lines="options.do_constant_folding = false",
    facts={
        "the weight is transposed in the graph": lambda proof: "Transpose" in proof.operators(17)
    },
    note="True is the default, and the weight is then stored as it is used.",
)
FOLDED = Feature(
    name="constant folding, by default",
    api="export(...)",
    torch="1.1+, TorchScript",
    model="options.py:Folded",
    lines=_TORCHSCRIPT,
    facts={"nothing is transposed in the graph": lambda p: "Transpose" not in p.operators(17)},
)
OPTIMIZE = Feature(
    name="without optimisation",
    api="export(..., optimize=False)",
    torch="2.5+, dynamo",
    model="options.py:RepeatedNode",
    rest=_DYNAMO,
    lines="options.optimize = false",
    facts={"the repeated node remains": lambda p: p.operators(18).count("Exp") == 2},
)
OPTIMIZED = Feature(
    name="optimised, by default",
    api="export(..., optimize=True)",
    torch="2.5+, dynamo; the default from 2.7",
    model="options.py:RepeatedNode",
    lines=_DYNAMO,
    facts={"the repeated node is merged": lambda p: p.operators(18).count("Exp") == 1},
)
VERBOSE = Feature(
    name="more output",
    api="export(..., verbose=True)",
    torch="1.0+",
    model="names.py:Affine",
    lines="options.verbose = true",
    by_command=True,
    facts={
        "the graph is in the log of the TorchScript cell": lambda p: "graph(" in _log(p, 13),
        "the steps are in the log of the dynamo cell": lambda p: "[torch.onnx]" in _log(p, 18),
    },
)
REPORT = Feature(
    name="the exporter's own report",
    api="export(..., report=True)",
    torch="2.5+, dynamo",
    model="names.py:Affine",
    rest=_DYNAMO,
    lines="options.report = true",
    facts={
        "`report.md` is next to the log, and a note names it": lambda p: _has_report(p, "report.md")
    },
)
DUMP = Feature(
    name="the captured program",
    api="export(..., dump_exported_program=True)",
    torch="2.5+, dynamo",
    model="names.py:Affine",
    rest=_DYNAMO,
    lines="options.dump_exported_program = true",
    facts={
        "`program.pt2` is next to the log, and a note names it": lambda p: _has_report(
            p, "program.pt2"
        )
    },
)
TRAINING = Feature(
    name="training mode",
    api="export(..., training=TrainingMode.TRAINING)",
    torch="1.4+, TorchScript; deprecated in 2.6",
    model="options.py:Stable",
    rest=_TORCHSCRIPT + "\naxes.batch.min = 2",
    lines='mode = "train"',
    facts={
        "BatchNormalization is in training mode": lambda p: any(
            attribute.name == "training_mode" and attribute.i == 1
            for node in p.graph(17).graph.node
            for attribute in node.attribute
        )
    },
    note="`options.training` is the same for the exporter alone; `mode` is for PyTorch, too.",
)
FUNCTIONS = Feature(
    name="modules as functions",
    api="export(..., export_modules_as_functions=True)",
    torch="1.11+, TorchScript; deprecated in 2.6",
    model="options.py:Stacked",
    rest=_TORCHSCRIPT,
    lines="options.export_modules_as_functions = true",
    support=Support.TORCHSCRIPT,
    note="torch loses the names of the outputs if a function returns them; here they are restored.",
    facts={
        "the file has a function for each kind of module": lambda p: (
            {"Stacked", "Layer", "Linear"} <= _functions(p).keys()
        )
    },
)
FUNCTION_TYPES = Feature(
    name="modules of some types as functions",
    api="export(..., export_modules_as_functions={nn.LayerNorm, Block})",
    torch="1.11+, TorchScript; deprecated in 2.6",
    model="options.py:Blocks",
    rest="opsets = [15, 17]",
    lines="""
options.export_modules_as_functions = ["torch.nn:LayerNorm", "options.py:Block"]
""",
    support=Support.TORCHSCRIPT,
    facts={
        "the file has these two functions": lambda p: (
            _functions(p).keys() == {"Block", "LayerNorm"}
        ),
        "annotated attributes of the module are attributes of its function": lambda p: (
            set(_functions(p)["LayerNorm"].attribute) >= {"eps", "elementwise_affine"}
        ),
    },
    note="Their domains are the modules of Python and need no `custom_opsets`.",
)
FUNCTIONS_ABSENT = Feature(
    name="a type of module that the model lacks",
    api="export(..., export_modules_as_functions={nn.Dropout})",
    torch="1.11+, TorchScript; deprecated in 2.6",
    model="options.py:Blocks",
    rest=_TORCHSCRIPT,
    lines='options.export_modules_as_functions = ["torch.nn:Dropout"]',
    support=Support.CAUGHT,
    verdicts={"*": refused(Stage.CONVERT, "has no module of the type torch.nn:Dropout")},
    note="torch.onnx.export returns normally and writes no function.",
)
FUNCTIONS_EARLY = Feature(
    name="functions before ONNX has them",
    api="export(..., export_modules_as_functions={nn.LayerNorm}, opset_version=13)",
    torch="1.11+, TorchScript; deprecated in 2.6",
    model="options.py:Blocks",
    rest="opsets = [13, 17]",
    lines='options.export_modules_as_functions = ["torch.nn:LayerNorm"]',
    invalid="ONNX has functions from opset 15, not at 13; write it in [[models.ID.overrides]]",
)
INLINED = Feature(
    name="autograd functions inlined",
    api="export(..., autograd_inlining=True)",
    torch="2.2+, TorchScript; deprecated in 2.6",
    model="options.py:Swish",
    lines=_TORCHSCRIPT,
    facts={"the function is replaced by its operators": lambda p: "Sigmoid" in p.operators(17)},
    note="This is the default.",
)
NOT_INLINED = Feature(
    name="autograd functions left alone",
    api="export(..., autograd_inlining=False)",
    torch="2.2+, TorchScript; deprecated in 2.6",
    model="options.py:Swish",
    rest=_TORCHSCRIPT,
    lines="options.autograd_inlining = false",
    verdicts={"*": refused(Stage.CONVERT, "Couldn't export Python operator")},
)


def _fallback(kind: str, versions: str) -> Feature:
    return Feature(
        name=f"operators that ONNX lacks: {kind}",
        api=f"export(..., operator_export_type=OperatorExportTypes.{kind})",
        torch=versions,
        model="options.py:Bessel",
        rest=_TORCHSCRIPT,
        lines=f'options.operator_export_type = "{kind}"',
        verdicts={"*": structure("opset", "the file uses the domain 'org.pytorch.aten'")},
        note="torch writes the file; ONNX Runtime has no such operator.",
    )


_SINCE = "1.0+, TorchScript; deprecated in 2.6"
REMOVED = Feature(
    name="arguments that torch removed",
    api="export(..., example_outputs=..., enable_onnx_checker=..., strip_doc_string=...)",
    torch="up to 1.10",
    model="names.py:Affine",
    lines="options.enable_onnx_checker = false",
    invalid="torch removed it after 1.10; every file is checked",
    note="Each of them is refused with its replacement in the message.",
)

SECTION = Section(
    name="Options",
    text=(
        "`options` takes the other arguments of `torch.onnx.export` by their own names, those of "
        "the exporter in use; `[[models.ID.overrides]]` sets them for some opsets."
    ),
    rows=(
        FOLDED,
        FOLDING,
        OPTIMIZED,
        OPTIMIZE,
        VERBOSE,
        REPORT,
        DUMP,
        TRAINING,
        FUNCTIONS,
        FUNCTION_TYPES,
        FUNCTIONS_ABSENT,
        FUNCTIONS_EARLY,
        INLINED,
        NOT_INLINED,
        *(_fallback(k, _SINCE) for k in ("ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")),
        REMOVED,
        Elsewhere(
            name="a profile of the export",
            api="export(..., profile=True)",
            torch="2.5+, dynamo",
            instead=(
                "`options.profile = true`: needs the package pyinstrument, without which torch "
                "raises and the cell is red; with `report` it is a part of `report.md`"
            ),
        ),
    ),
)
