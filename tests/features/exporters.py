"""The exporter of a file, and its capture of the model."""

from __future__ import annotations

from collections.abc import Callable

from tests.features.feature import Feature, Proof, Section


def _has_producer(exporter: str, capture: str) -> Callable[[Proof], bool]:
    def is_true(proof: Proof) -> bool:
        routes = [record.route for record in proof.records]
        return all(
            route is not None and (route.exporter, route.capture) == (exporter, capture)
            for route in routes
        )

    return is_true


def _routes(proof: Proof) -> list[str]:
    return [record.route.exporter if record.route else "" for record in proof.records]


SECTION = Section(
    name="Exporters",
    rows=(
        Feature(
            name="an exporter for each opset",
            api="export(model, args, opset_version=...)",
            torch="1.2+",
            model="names.py:Affine",
            lines='opsets = "16..19"',
            facts={
                "TorchScript exports 16 and 17, dynamo 18 and 19": lambda proof: (
                    sorted(_routes(proof)) == ["dynamo", "dynamo", "torchscript", "torchscript"]
                )
            },
            note="The default is dynamo from 18 on and TorchScript below. The record contains the"
            " choice and the reason.",
        ),
        Feature(
            name="the dynamo exporter",
            api="export(..., dynamo=True)",
            torch="2.5+; the default from 2.9",
            model="names.py:Affine",
            lines='exporter = "dynamo"\nopsets = [17, 18, 23]',
            facts={"all three are dynamo's": _has_producer("dynamo", "export")},
            note="Below 18 the version converter converts its file if it can.",
        ),
        Feature(
            name="the TorchScript exporter",
            api="export(..., dynamo=False)",
            torch="1.0+; the default up to 2.8",
            model="names.py:Affine",
            lines='exporter = "torchscript"\nopsets = [9, 18, 20]',
            facts={"all three are TorchScript's": _has_producer("torchscript", "trace")},
        ),
        Feature(
            name="strict capture",
            api="torch.export.export(..., strict=True)",
            torch="2.5+",
            model="names.py:Affine",
            lines='capture = "strict"\nopsets = [18]',
            facts={"it is captured strictly": _has_producer("dynamo", "strict")},
            note="`torch.onnx.export` tries it if the other capture fails. This tool uses only "
            "the declared capture.",
        ),
        Feature(
            name="scripted",
            api="export(torch.jit.script(model), args, dynamo=False)",
            torch="1.2+",
            model="names.py:Affine",
            lines='capture = "script"\nopsets = [9, 13]',
            facts={"they are scripted": _has_producer("torchscript", "script")},
        ),
        Feature(
            name="a capture of the other exporter",
            api="export(torch.jit.script(model), args, dynamo=True)",
            torch="2.5+",
            model="names.py:Affine",
            lines='exporter = "dynamo"\ncapture = "script"',
            invalid="'script' is not a capture of dynamo",
        ),
    ),
)
