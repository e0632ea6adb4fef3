"""Weights: their origin and their place in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from exporter.records.record import Stage
from tests.features.feature import Feature, Proof, Section, refused

_INPUT_NAMES = ["x", "linear.weight", "linear.bias", "norm.weight", "norm.bias"]
_INPUT_NAMES += ["norm.running_mean", "norm.running_var"]


def _save(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        import torch
        from safetensors.torch import save_file

        torch.manual_seed(5)
        state = torch.nn.Linear(4, 4).state_dict()
        state = {f"linear.{key}": value for key, value in state.items()}
        if name.endswith(".safetensors"):
            save_file(state, folder / name)
        else:
            torch.save(state, folder / name)

    return write


class _Runs:
    """A pickle that would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def _save_pickle(folder: Path) -> None:
    import torch

    torch.save({"linear.weight": _Runs()}, folder / "net.pt")


def _save_training(folder: Path) -> None:
    import torch

    torch.manual_seed(5)
    linear = torch.nn.Linear(4, 4).state_dict()
    state = {f"module.linear.{key}": value for key, value in linear.items()}
    torch.save({"model": state, "epoch": 3}, folder / "net.pt")


def _inputs(proof: Proof, opset: int) -> list[str]:
    return [item.name for item in proof.graph(opset).graph.input]


def _is_outside(proof: Proof) -> bool:
    return all(record.artifact and record.artifact.external_data for record in proof.records)


_ROWS = (
    Feature(
        name="weights from safetensors",
        api="model.load_state_dict(load_file(...))",
        model="sources.py:Affine",
        lines='weights = "net.safetensors"',
        prepare=_save("net.safetensors"),
        note="Missing and unexpected names are named. `weights_sha256` fixes the content.",
    ),
    Feature(
        name="weights from a checkpoint",
        api="model.load_state_dict(torch.load(..., weights_only=True))",
        torch="1.13+",
        model="sources.py:Affine",
        lines='weights = "net.pt"',
        prepare=_save("net.pt"),
    ),
    Feature(
        name="weights in a checkpoint of a training",
        api='model.load_state_dict(torch.load(...)["model"])',
        torch="1.13+",
        model="sources.py:Affine",
        lines='weights = { file = "net.pt", key = "model", strip = "module." }',
        prepare=_save_training,
        note="`record` finds file, key and prefix by the values.",
    ),
    Feature(
        name="a checkpoint that would run something",
        api="torch.load(..., weights_only=True)",
        torch="1.13+",
        model="sources.py:Affine",
        lines='weights = "net.pt"',
        prepare=_save_pickle,
        verdicts={"*": refused(Stage.SOURCE, "net.pt is refused: it would run")},
    ),
    Feature(
        name="a checkpoint of other content",
        api="",
        torch="1.13+",
        model="sources.py:Affine",
        lines=f'weights = "net.pt"\nweights_sha256 = "{"0" * 64}"',
        prepare=_save("net.pt"),
        verdicts={"*": refused(Stage.SOURCE, "expected 0000")},
    ),
    Feature(
        name="weights as inputs of the file",
        api="export(..., export_params=False)",
        model="sources.py:Normalised",
        lines="options.export_params = false",
        facts={
            "the declared inputs, then the weights in the order of state_dict": lambda proof: (
                _inputs(proof, 13) == _INPUT_NAMES and _inputs(proof, 18) == _INPUT_NAMES
            ),
            "none of them has a value in the file": lambda proof: (
                not any(
                    item.name in _INPUT_NAMES
                    for opset in (13, 18)
                    for item in proof.graph(opset).graph.initializer
                )
            ),
        },
        note="torch.onnx.export omits folded weights with their own names and merges equal ones. "
        "Here every weight keeps its name.",
    ),
    Feature(
        name="initializers listed as inputs",
        api="export(..., keep_initializers_as_inputs=True)",
        model="sources.py:Affine",
        lines="options.keep_initializers_as_inputs = true",
        facts={
            "every initializer is an input": lambda proof: all(
                {item.name for item in proof.graph(opset).graph.initializer}
                <= set(_inputs(proof, opset))
                for opset in (13, 18)
            )
        },
    ),
    Feature(
        name="external weights",
        api="export(..., external_data=True)",
        torch="2.5+, dynamo",
        model="large.py:Wide",
        lines="options.external_data = true",
        facts={"the weights are external": _is_outside},
        note="By default, weights are external from 1 MB on, once for all opsets.",
    ),
    Feature(
        name="weights inside the file",
        api="export(..., external_data=False)",
        torch="2.5+, dynamo",
        model="large.py:Wide",
        lines="options.external_data = false",
        facts={"the weights are in the ONNX file": lambda proof: not _is_outside(proof)},
        note="Such a file has at most 2 GB.",
    ),
)

SECTION = Section(name="Weights", text="", rows=_ROWS)
