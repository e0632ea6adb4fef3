"""The exporter and the kind of capture, and the sources that they accept."""

from __future__ import annotations

import warnings
from pathlib import Path

from exporter.records.record import Stage, Status
from tests.features.feature import Feature, Section, Support, Verdict, parity, refused, structure

_BY_TORCHSCRIPT = 'exporter = "torchscript"\nopsets = [13, 18]'


def _save_program(folder: Path) -> None:
    import torch
    from torch.export import Dim

    program = torch.export.export(
        torch.nn.Linear(4, 4).eval(), (torch.zeros(5, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)
    )
    torch.export.save(program, folder / "net.pt2")


def _save_script(folder: Path) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated
        torch.jit.script(torch.nn.Linear(4, 4).eval()).save(str(folder / "net.pt"))


_ROWS = (
    Feature(
        name="a torch.export.ExportedProgram",
        api="export(torch.export.export(...), dynamo=True)",
        torch="2.5+, dynamo",
        model="sources.py:captured",
        lines='exporter = "dynamo"',
        rest="opsets = [18]",
        support=Support.DYNAMO,
        note="An attribute that is one or returns one. Its module gives the reference outputs.",
    ),
    Feature(
        name="a saved ExportedProgram",
        api="torch.export.load",
        torch="2.1+, dynamo",
        model="",
        lines='source = "net.pt2"',
        rest="opsets = [18]",
        prepare=_save_program,
        support=Support.DYNAMO,
    ),
    Feature(
        name="a program whose axes are not the contract's",
        api="dynamic_shapes of torch.export.export",
        torch="2.5+, dynamo",
        model="sources.py:fixed",
        lines="axes.batch = { example = 3 }",
        rest="opsets = [18]",
        verdicts={"*": structure("signature", "axis 'batch' of input 'x' is fixed at 3")},
    ),
    Feature(
        name="a program for other sizes than declared",
        api="dynamic_shapes of torch.export.export",
        torch="2.5+, dynamo",
        model="sources.py:fixed",
        lines="axes.batch = { example = 5 }",
        rest="opsets = [18]",
        verdicts={
            "*": Verdict(
                status=Status.FAIL,
                stage=Stage.SOURCE,
                message="captured with input 'x' as float32 [3, 4]",
            )
        },
    ),
    Feature(
        name="an ExportedProgram by TorchScript",
        api="export(program, dynamo=False)",
        torch="2.5+",
        model="sources.py:captured",
        lines='exporter = "torchscript"',
        rest="opsets = [13]",
        support=Support.CAUGHT,
        verdicts={"*": refused(Stage.CAPTURE, "set exporter = 'dynamo'")},
    ),
    Feature(
        name="a saved program by TorchScript",
        api="export(program, dynamo=False)",
        torch="2.5+",
        model="",
        lines='source = "net.pt2"\nexporter = "torchscript"',
        prepare=_save_program,
        invalid="only dynamo can export a saved program",
    ),
    Feature(
        name="a torch.jit.ScriptModule",
        api="export(torch.jit.script(model), dynamo=False)",
        model="sources.py:scripted",
        lines=_BY_TORCHSCRIPT,
        support=Support.TORCHSCRIPT,
    ),
    Feature(
        name="a torch.jit.ScriptFunction",
        api="export(function, dynamo=False)",
        model="sources.py:doubled_until_large",
        lines=_BY_TORCHSCRIPT,
        support=Support.TORCHSCRIPT,
    ),
    Feature(
        name="a saved TorchScript module",
        api="torch.jit.load",
        model="",
        lines='source = "net.pt"\nexporter = "torchscript"',
        rest="opsets = [13, 18]",
        prepare=_save_script,
        support=Support.TORCHSCRIPT,
    ),
    Feature(
        name="a draft export",
        api="torch.export.draft_export",
        torch="2.7+, dynamo",
        model="sources.py:Unproven",
        lines='capture = "draft"',
        rest="opsets = [18]",
        support=Support.DYNAMO,
        facts={
            "a note names each place that depends on values": lambda proof: (
                proof.notes(18).count("depends on values") == 2
                and "manifests/sources.py:" in proof.notes(18)
            )
        },
        note="Its conditions are those of the example; the checks show if that is right.",
    ),
    Feature(
        name="a draft export that is wrong for other values",
        api="torch.export.draft_export",
        torch="2.7+, dynamo",
        model="sources.py:Branching",
        lines='capture = "draft"',
        rest="opsets = [18]",
        verdicts={"*": parity("axes", "output 'y': error")},
        note="torch.export.draft_export returns normally, with a warning in the log.",
    ),
    Feature(
        name="all places at which a capture fails",
        api="torch.export.export, draft_export",
        torch="2.7+, dynamo",
        model="sources.py:Unproven",
        lines='exporter = "dynamo"',
        rest="opsets = [18]",
        verdicts={"*": refused(Stage.CAPTURE, "data-dependent")},
        is_diagnosed=True,
        facts={
            "the record names both places, each with file and line": lambda proof: (
                [line.partition(":")[0] for line in proof.record(18).obstacles]
                == ["manifests/sources.py"] * 2
            )
        },
        note="torch.export stops at the first one; a draft export in the diagnosis goes on.",
    ),
    Feature(
        name="a traced model with a scripted part",
        api='"mix tracing and scripting"',
        model="sources.py:PartlyScripted",
        lines='exporter = "torchscript"',
        rest="opsets = [13, 18]",
        support=Support.TORCHSCRIPT,
        facts={
            "the branch is in the file": lambda proof: (
                "If" in proof.operators(13) and "If" in proof.operators(18)
            )
        },
    ),
    Feature(
        name="a compiled function by dynamo",
        api="export(function, dynamo=True)",
        torch="2.5+, dynamo",
        model="sources.py:doubled_until_large",
        lines='exporter = "dynamo"',
        rest="opsets = [18]",
        support=Support.CAUGHT,
        verdicts={"*": refused(Stage.CAPTURE, "set exporter = 'torchscript'")},
    ),
)

SECTION = Section(name="Sources", text="", rows=_ROWS)
