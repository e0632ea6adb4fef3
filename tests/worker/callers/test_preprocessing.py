"""The declared preprocessing of an input against what PyTorch's program feeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from exporter.manifest import Input, ModelSpec, Preprocess
from exporter.worker.callers.preprocessing import PROVED, judge_preprocessing, prepare_inputs
from tests.worker.callers.test_caller_check import find_result, make_caller, prove
from tests.worker.contracts import make_contract

FOLDER = Path(__file__).parent
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TABLE: dict[str, Any] = {"layout": "NCHW", "colour": "RGB", "range": (0, 1)}
NORMALIZED = {**TABLE, "mean": MEAN, "std": STD}
GENERATOR = np.random.default_rng(0)
AREAS = GENERATOR.integers(0, 256, (8, 8, 3), np.uint8)
PICTURE = np.kron(AREAS, np.ones((4, 4, 1), np.uint8))
GRAY = np.repeat(PICTURE[..., :1], 3, axis=2)
SMALL = np.asarray(Image.fromarray(PICTURE).resize((12, 20), Image.Resampling.BICUBIC))


def scale(picture: Any) -> Any:
    return (picture / 255).astype(np.float32).transpose(2, 0, 1)[None]


def normalize(picture: Any) -> Any:
    return scale((picture / 255 - np.array(MEAN)) / np.array(STD) * 255)


def judge(table: dict[str, Any], sample: object, given: Any) -> tuple[str, dict[str, str]]:
    shape = tuple(given.shape) if given.ndim == 4 else ("batch", given.shape[-1])
    item = Input(name="image", shape=shape, at="args[0]", preprocess=Preprocess(**table))
    spec = make_contract("Net").model_copy(update={"inputs": (item,)})
    values, reasons = prepare_inputs(spec, FOLDER, sample)
    return judge_preprocessing(spec, [(values, {"image": given})], reasons)


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (TABLE, scale(PICTURE)),
        (NORMALIZED, normalize(PICTURE)),
        (TABLE | {"range": (0, 255)}, scale(PICTURE) * 255),
        (TABLE | {"range": (-1, 1)}, scale(PICTURE) * 2 - 1),
        (TABLE | {"colour": "BGR"}, scale(PICTURE[..., ::-1])),
        (TABLE | {"layout": "NHWC"}, scale(PICTURE).transpose(0, 2, 3, 1)),
        (TABLE | {"size": (20, 12), "resize": "bicubic"}, scale(SMALL)),
        (TABLE | {"resize": "bicubic"}, scale(SMALL)),
    ],
)
def test_a_right_table_is_proved(table: dict[str, Any], given: Any) -> None:
    assert judge(table, PICTURE, given) == ("", {"image": PROVED})


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (TABLE, normalize(PICTURE), "feeds values from -2."),
        (NORMALIZED, scale(PICTURE), "it is not normalized: PyTorch subtracts the mean"),
        (TABLE, scale(PICTURE) * 255, "values from 0 to 249, declared are 0 to 1"),
        (TABLE | {"range": (0, 255)}, scale(PICTURE), "its values are 0 to 255: divide by 255"),
        (TABLE | {"range": (-1, 1)}, scale(PICTURE), "it is not normalized"),
        (TABLE | {"colour": "BGR"}, scale(PICTURE), "the channels are in the opposite order"),
        (TABLE | {"layout": "NCWH"}, scale(PICTURE), "its axes are in the order [0, 1, 3, 2]"),
        (TABLE | {"size": (20, 12)}, scale(PICTURE), "its shape is [1, 3, 20, 12]"),
        ({"function": "served.py:normalize"}, scale(PICTURE), "and not [1, 3, 32, 32]"),
        ({"function": "served.py:missing"}, scale(PICTURE), "served.py:missing: raises"),
        ({"function": "trained.py:list_speeds"}, scale(PICTURE), "raises TypeError"),
        ({"range": (-1, 1)}, np.array([[3.0]]), "values from 3 to 3, declared are -1 to 1"),
    ],
)
def test_a_wrong_table_is_named(table: dict[str, Any], given: Any, message: str) -> None:
    problem, _ = judge(table, PICTURE, given)
    assert problem.startswith("`preprocess` of 'image': ")
    assert message in problem


@pytest.mark.parametrize(
    ("table", "sample", "given", "reason"),
    [
        (TABLE, PICTURE, scale(SMALL), "the same picture by another resize"),
        (TABLE, GRAY, scale(GRAY), "the samples have no colours"),
        ({"layout": "NCHW", "colour": "RGB"}, PICTURE, scale(PICTURE), "no range is declared"),
        ({"layout": "NT", "colour": "L", "range": (0, 1)}, 3.0, np.array([[0.5]]), "no layout of"),
        (TABLE, 3.0, scale(PICTURE), "the samples are no pictures"),
        (TABLE, "missing.png", scale(PICTURE), "raises FileNotFoundError"),
        (TABLE, PICTURE, np.concatenate([scale(PICTURE)] * 2), "feeds several samples at once"),
    ],
)
def test_what_cannot_be_compared_is_not_proved(
    table: dict[str, Any], sample: object, given: Any, reason: str
) -> None:
    problem, outcomes = judge(table, sample, given)
    assert not problem
    assert reason in outcomes["image"]


def declare(spec: ModelSpec, table: dict[str, Any]) -> ModelSpec:
    (item,) = spec.inputs
    changed = item.model_copy(update={"preprocess": Preprocess(**table)})
    return spec.model_copy(update={"inputs": (changed,)})


def test_a_record_says_what_a_caller_proves(tmp_path: Path) -> None:
    caller = make_caller("classify", "Picture")
    record = prove("Picture", tmp_path, caller, change=lambda spec: declare(spec, NORMALIZED))
    assert find_result(record).metrics == {"callers": 1, "preprocess of image": PROVED}


def test_a_wrong_declaration_is_red(tmp_path: Path) -> None:
    caller = make_caller("classify", "Picture")
    record = prove("Picture", tmp_path, caller, change=lambda spec: declare(spec, TABLE))
    assert record.failure_code == "E-caller"
    assert record.message.startswith("callers/trained.py:classify: `preprocess` of 'image': ")
