from __future__ import annotations

import pytest

from exporter.manifest import Axis, Bound, Case, Constant, Fill, Input, Output, Tolerance
from exporter.manifest.resolved.call import SizeRule
from exporter.manifest.resolved.model import MEASURED
from exporter.report.pages.model_page import describe_contract
from tests.unit.factory import make_spec


def settings(**fields: object) -> dict[str, str]:
    return {
        setting["name"]: setting["value"]
        for setting in describe_contract(make_spec(**fields))["settings"]
    }


def test_defaults_are_not_listed() -> None:
    assert settings() == {
        "source": "models/vision.py:AlexNet",
        "opsets": "17..18",
        "devices": "cpu",
        "tolerance": MEASURED,
    }


def test_settings_are_listed() -> None:
    shown = settings(
        opsets=(9, 10, 13),
        devices=("cpu", "cuda"),
        exporter="torchscript",
        capture="script",
        mode="train",
        seed=7,
        ir_version=9,
        init={"upscale": 3, "name": "x"},
        constants=(Constant(at="kwargs.use_cache", value=False),),
        options={"do_constant_folding": True},
        tolerance=Tolerance(noise=20, by_device={"cuda": Bound(atol=1e-3, rtol=0.01, outside=0.1)}),
    )
    assert shown == {
        "source": "models/vision.py:AlexNet",
        "opsets": "9..10, 13",
        "devices": "cpu, cuda",
        "tolerance": "20 times PyTorch's own float32 error; "
        "cuda: atol 0.001, rtol 0.01, up to 0.1 of the elements outside",
        "ir_version": "at most 9",
        "exporter": "torchscript",
        "capture": "script",
        "mode": "train",
        "seed": "7",
        "init": 'upscale = 3, name = "x"',
        "constants": 'at = "kwargs.use_cache", value = false',
        "options": "do_constant_folding = true",
    }


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        (Fill(kind="normal"), "normal"),
        (Fill(kind="uniform", low=0, high=1), "uniform [0, 1]"),
        (Fill(kind="randint", low=0, high=1000), "randint [0, 1000)"),
        (Fill(kind="bernoulli", probability=0.25), "bernoulli 0.25"),
        (Fill(kind="mask", side="right"), "mask right"),
        (Fill(kind="padding", side="left"), "padding left"),
        (Fill(kind="lengths_of", axis="n"), "lengths of n"),
        (Fill(kind="value", value=[1, 2]), "value [1, 2]"),
        (Fill(kind="file", file="x.npy"), "file x.npy"),
        (Fill(kind="python", python="x.py:make"), "python x.py:make"),
    ],
)
def test_fills_are_described(fill: Fill, text: str) -> None:
    spec = make_spec(inputs=(Input(name="x", shape=("n", 3), at="args[0]", fill=fill),))
    (row,) = describe_contract(spec)["inputs"]
    assert (row["name"], row["shape"], row["fill"]) == ("x", "[n, 3]", text)


def test_outputs_and_their_own_tolerance() -> None:
    scalar = Output(name="y", shape=(), dtype="float16", tolerance=Tolerance(atol=0.5))
    rows = describe_contract(make_spec(outputs=(scalar, Output(name="z", shape=(1,)))))["outputs"]
    assert [(row["name"], row["dtype"], row["shape"], row["tolerance"]) for row in rows] == [
        ("y", "float16", "[]", "atol 0.5"),
        ("z", "float32", "[1]", ""),
    ]


TOTAL = SizeRule(kind="sum", operands=("past", "seq"))


def test_axes_and_cases() -> None:
    spec = make_spec(
        axes=(
            Axis(name="batch", example=3),
            Axis(name="width", example=64, min=32, max=512, multiple_of=32),
            Axis(name="found", example=None),
            Axis(name="total", example=8, max=64, rule=TOTAL),
        ),
        cases=(Case(name="wide", fills={"n": Fill(kind="value", value=9)}, axes={"width": 480}),),
    )
    page = describe_contract(spec)
    assert [(row["name"], row["example"], row["sizes"]) for row in page["axes"]] == [
        ("batch", "3", "1 and up"),
        ("width", "64", "32 to 512, multiples of 32"),
        ("found", "", "1 and up"),
        ("total", "8", "past + seq, 1 to 64"),
    ]
    assert [(case["name"], case["value"]) for case in page["cases"]] == [
        ("wide", "n = 9, width = 480")
    ]
