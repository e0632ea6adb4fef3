"""Operators that ONNX lacks, and the kernels that run them."""

from __future__ import annotations

from collections.abc import Callable

from exporter.records.record import Stage, Status
from tests.features.feature import (
    SOUND,
    Feature,
    Proof,
    Section,
    Support,
    Verdict,
    parity,
    refused,
    structure,
)

# Kernels of onnxruntime-extensions are registered for a process, and torch remembers operators that
# once had a symbolic function. Rows about these have their own processes.
_BOTH = 'devices = ["cpu", "reference"]'
_DECLARED = "options = { custom_opsets = { custom_domain = 1 } }"
_KERNELS = 'ort_library = "kernels.py:library", reference = "kernels.py:Foo"'
_SYMBOLIC = 'symbolic = "custom_operators.py:symbolic_foo"'
_TRANSLATION = 'translation = "custom_operators.py:onnx_foo"'
_OFF = parity("parity", "output 'y': error")


def _entries(*entries: str) -> str:
    lines = "".join(f"  {{ {entry} }},\n" for entry in entries)
    return f"custom_ops = [\n{lines}]\n"


def _unavailable(message: str) -> Verdict:
    return Verdict(status=Status.UNAVAILABLE, stage=Stage.LOAD, message=message)


def _domain(domain: str, opset: int, version: int = 1) -> Callable[[Proof], bool]:
    """Return whether the file has operators of a domain in this version."""

    def is_true(proof: Proof) -> bool:
        model = proof.graph(opset)
        imports = {item.domain: item.version for item in model.opset_import}
        return imports.get(domain) == version and any(
            node.domain == domain for node in model.graph.node
        )

    return is_true


def _functions(proof: Proof) -> bool:
    model = proof.graph(15)
    names = {(item.domain, item.name) for item in model.functions}
    return names == {("own", "selu"), ("own", "leaky_relu")}


def _blamed(culprit: str) -> Callable[[Proof], bool]:
    def is_true(proof: Proof) -> bool:
        blames = [record.blame for record in proof.records if record.blame]
        return bool(blames) and all(blame.culprit == culprit for blame in blames)

    return is_true


def _sources(*names: str) -> Callable[[Proof], bool]:
    def is_true(proof: Proof) -> bool:
        files = {source.file for record in proof.records for source in record.sources}
        return {f"manifests/{name}" for name in names} <= files

    return is_true


_EXPORTED = (
    Feature(
        name="a symbolic function for an operator of its own",
        api="torch.onnx.register_custom_op_symbolic",
        package="onnxruntime_extensions",
        model="custom_operators.py:Foo",
        lines=f"""opsets = "9..17"
{_DECLARED}
{_BOTH}
"""
        + _entries(f'name = "custom_ops::foo", {_SYMBOLIC}, opset = 9,\n    {_KERNELS}'),
        support=Support.TORCHSCRIPT,
        facts={
            "a node of custom_domain 1 is in the file": _domain("custom_domain", 13),
            "both files count as sources": _sources("custom_operators.py", "kernels.py"),
        },
        note="Unregistered after each export. The operator is one of `torch.library.custom_op`.",
        by_command=True,
    ),
    Feature(
        name="a symbolic function made of ONNX's own operators",
        api="torch.onnx.register_custom_op_symbolic",
        model="custom_operators.py:Foo",
        lines="opsets = [9, 17]\n"
        + _entries('name = "custom_ops::foo", symbolic = "custom_operators.py:symbolic_of_onnx"'),
        rest=_BOTH,
        support=Support.TORCHSCRIPT,
        note="It needs no kernel.",
    ),
    Feature(
        name="a symbolic function for some opsets",
        api="torch.onnx.register_custom_op_symbolic(..., opset_version)",
        model="custom_operators.py:Foo",
        lines="opsets = [9, 13, 17]\n"
        + _entries(
            'name = "custom_ops::foo", symbolic = "custom_operators.py:symbolic_wrong", opset = 13',
            'name = "custom_ops::foo", symbolic = "custom_operators.py:symbolic_of_onnx",'
            " opset = 15",
        ),
        support=Support.TORCHSCRIPT,
        verdicts={
            "9": refused(Stage.CONVERT, "custom_ops::foo"),
            "13": _OFF,
            "17": SOUND,
        },
        note="At opset 13 the older function applies, which is wrong; at 9 there is none.",
        by_command=True,
    ),
    Feature(
        name="a symbolic function that is wrong",
        api="torch.onnx.register_custom_op_symbolic",
        model="custom_operators.py:Foo",
        lines="opsets = [13]\n"
        + _entries('name = "custom_ops::foo", symbolic = "custom_operators.py:symbolic_wrong"'),
        verdicts={"*": _OFF},
        is_diagnosed=True,
        facts={"the exporter is to blame": _blamed("exporter")},
    ),
    Feature(
        name="a translation for an operator of its own",
        api="export(..., custom_translation_table=...)",
        torch="2.6+",
        package="onnxruntime_extensions",
        model="custom_operators.py:Foo",
        lines=f"""opsets = "18..21"
{_DECLARED}
{_BOTH}
"""
        + _entries(f'name = "custom_ops.foo.default", {_TRANSLATION},\n    {_KERNELS}'),
        support=Support.DYNAMO,
        facts={"a node of custom_domain 1 is in the file": _domain("custom_domain", 18)},
        by_command=True,
    ),
    Feature(
        name="a translation of an operator that dynamo lacks",
        api="export(..., custom_translation_table=...)",
        torch="2.6+",
        model="custom_operators.py:Cumulative",
        lines="opsets = [18, 21]\n"
        + _entries(
            'name = "aten.cumprod.default", translation = "custom_operators.py:onnx_cumprod"'
        ),
        rest=_BOTH,
        support=Support.DYNAMO,
    ),
    Feature(
        name="the same without its translation",
        api="export(..., dynamo=True)",
        torch="2.6+",
        model="custom_operators.py:Cumulative",
        lines="opsets = [18]",
        verdicts={"*": refused(Stage.CONVERT, "No ONNX function found")},
        is_diagnosed=True,
        facts={
            "the record names the operators that remain after decomposition": lambda proof: (
                [item.operator for item in proof.record(18).missing] == ["prims.prod.default"]
            )
        },
    ),
    Feature(
        name="a translation that is wrong",
        api="export(..., custom_translation_table=...)",
        torch="2.6+",
        model="custom_operators.py:Foo",
        lines="opsets = [18]\n"
        + _entries(
            'name = "custom_ops.foo.default", translation = "custom_operators.py:onnx_foo_wrong"'
        ),
        verdicts={"*": _OFF},
        is_diagnosed=True,
        facts={"the exporter is to blame": _blamed("exporter")},
    ),
    Feature(
        name="one operator under both exporters",
        api="register_custom_op_symbolic, custom_translation_table",
        torch="2.6+",
        model="custom_operators.py:Foo",
        lines="opsets = [13, 18]\n"
        + _entries(
            'name = "custom_ops::foo", symbolic = "custom_operators.py:symbolic_of_onnx"',
            'name = "custom_ops.foo.default", translation = "custom_operators.py:onnx_foo_of_onnx"',
        ),
        rest=_BOTH,
    ),
    Feature(
        name="a function of onnxscript under TorchScript",
        api="GraphContext.onnxscript_op",
        torch="2.0+",
        model="custom_operators.py:Selu",
        lines="opsets = [15, 17]\n"
        + _entries(
            'name = "aten::selu", onnxscript = "custom_operators.py:selu"',
            'name = "aten::leaky_relu", onnxscript = "custom_operators.py:leaky_relu"',
        ),
        support=Support.TORCHSCRIPT,
        verdicts={"15": SOUND, "17": structure("opset", "own::selu has opset 15, expected 17")},
        facts={"both functions are in the file": _functions},
        note="The file brings the function along, so it needs no kernel. It is written for one "
        "opset, and a file of another one is mixed.",
    ),
    Feature(
        name="torch.onnx.ops.symbolic",
        api="torch.onnx.ops.symbolic(domain_op, inputs, attrs, *, dtype, shape)",
        torch="2.8+",
        package="onnxruntime_extensions",
        model="custom_operators.py:Symbolic",
        lines="opsets = [18]\n"
        + _BOTH
        + "\n"
        + _entries(f'name = "custom_domain::Foo", {_KERNELS}'),
        support=Support.DYNAMO,
        facts={"a node of custom_domain 1 is in the file": _domain("custom_domain", 18)},
        note="The entry of kernels names the domain, too.",
        by_command=True,
    ),
)

_FUNCTIONS = (
    Feature(
        name="an autograd.Function with a symbolic of its own",
        api="torch.autograd.Function.symbolic",
        torch="1.0+",
        package="onnxruntime_extensions",
        model="custom_operators.py:Halved",
        lines=f"""opsets = [13, 17]
options = {{ custom_opsets = {{ custom_domain = 2 }} }}
{_BOTH}
"""
        + _entries(
            'name = "custom_domain::Halve", ort_library = "kernels.py:library",'
            ' reference = "kernels.py:Halve"'
        ),
        support=Support.TORCHSCRIPT,
        facts={"a node of custom_domain 2 is in the file": _domain("custom_domain", 13, 2)},
        by_command=True,
    ),
    Feature(
        name="an autograd.Function that is inlined",
        api="export(..., autograd_inlining=True)",
        torch="2.0+",
        model="custom_operators.py:Doubled",
        lines="opsets = [13, 18]",
        rest=_BOTH,
        note="The default of TorchScript. dynamo captures the operators inside and ignores an own"
        " `symbolic`.",
    ),
    Feature(
        name="an autograd.Function under dynamo",
        api="export(..., dynamo=True)",
        torch="2.5+",
        model="custom_operators.py:Halved",
        lines="opsets = [18]",
        rest=_BOTH,
        support=Support.DYNAMO,
    ),
    Feature(
        name="an autograd.Function that is not inlined",
        api="export(..., autograd_inlining=False)",
        torch="2.0+",
        model="custom_operators.py:Doubled",
        lines="opsets = [13]\noptions = { autograd_inlining = false }",
        verdicts={"*": refused(Stage.CONVERT, "Couldn't export Python operator _Doubled")},
    ),
    Feature(
        name="a symbolic function for all Python functions",
        api='register_custom_op_symbolic("prim::PythonOp", ...)',
        torch="1.10+",
        model="custom_operators.py:Doubled",
        lines="opsets = [13]\noptions = { autograd_inlining = false }\n"
        + _entries('name = "prim::PythonOp", symbolic = "custom_operators.py:symbolic_python"'),
        rest=_BOTH,
        support=Support.TORCHSCRIPT,
    ),
)

_RUN = (
    Feature(
        name="an operator that nothing here can run",
        api="custom_opsets",
        model="custom_operators.py:Foo",
        lines=f"{_DECLARED}\n{_BOTH}\n"
        + _entries(
            f'name = "custom_ops::foo", {_SYMBOLIC}',
            f'name = "custom_ops.foo.default", {_TRANSLATION}',
        ),
        verdicts={"*": _unavailable("has no kernel for custom_domain::Foo; add a ")},
        note="Its structure is checked all the same.",
    ),
    Feature(
        name="an operator of a domain that the manifest does not name",
        api="custom_opsets",
        model="custom_operators.py:Foo",
        lines=_entries(f'name = "custom_ops::foo", {_SYMBOLIC}') + "opsets = [13]",
        verdicts={
            "*": structure("opset", "uses the domain 'custom_domain' (Foo), which the manifest")
        },
    ),
    Feature(
        name="a kernel for one runtime alone",
        api="onnx.reference.op_run.OpRun",
        model="custom_operators.py:Foo",
        lines=f"{_DECLARED}\n"
        + _entries(
            f'name = "custom_ops::foo", {_SYMBOLIC}, reference = "kernels.py:Foo"',
            f'name = "custom_ops.foo.default", {_TRANSLATION}',
        ),
        rest='devices = ["reference"]',
    ),
    Feature(
        name="a kernel that is wrong",
        api="SessionOptions.register_custom_ops_library",
        package="onnxruntime_extensions",
        model="custom_operators.py:Foo",
        lines=f"{_DECLARED}\nopsets = [13]\n"
        + _entries(
            f'name = "custom_ops::foo", {_SYMBOLIC},\n'
            '    ort_library = "kernels.py:wrong_library", reference = "kernels.py:Foo"'
        ),
        verdicts={"*": _OFF},
        facts={"the kernel is to blame": _blamed("kernel")},
        by_command=True,
    ),
    Feature(
        name="kernels that lack the operator",
        api="onnx.reference.op_run.OpRun",
        model="custom_operators.py:Foo",
        lines=f"{_DECLARED}\nopsets = [13]\n"
        + _entries(f'name = "custom_ops::foo", {_SYMBOLIC}, reference = "kernels.py:Wrong"'),
        rest='devices = ["reference"]',
        verdicts={"*": refused(Stage.LOAD, "Foo")},
        note="A function with a wrong signature is a mistake of the entry, not a missing part of "
        "this machine.",
    ),
    Feature(
        name="the name of an operator in the other exporter's form",
        api="custom_translation_table",
        torch="2.6+",
        model="custom_operators.py:Foo",
        lines="opsets = [18]\n" + _entries(f'name = "custom_ops::foo", {_TRANSLATION}'),
        invalid='got "custom_ops::foo"; did you mean "custom_ops.foo.default"?',
    ),
)

SECTION = Section(
    name="Custom operators",
    text="`custom_ops` sets the translation of an operator and its kernel. `ort_library` is a "
    "file of the project, or a function that returns the path of one. Here it returns the "
    "path of onnxruntime-extensions, which has kernels in Python.",
    rows=(*_EXPORTED, *_FUNCTIONS, *_RUN),
)
