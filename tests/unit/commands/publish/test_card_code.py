"""The programs on a card do what the proof does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from exporter.commands.publish.card_code import write_cpp, write_sample_code, write_session
from exporter.commands.publish.published_folder import ExampleTensor, Publication
from exporter.core.device_name import DeviceName
from exporter.manifest import Device, Input, ModelSpec, Output, Preprocess
from exporter.worker.callers.preprocessing import prepare_picture
from tests.unit.factory import make_record, make_spec

DEVICE = Device(
    name=DeviceName("cuda"),
    runtime="onnxruntime",
    providers=("CUDAExecutionProvider",),
    session_options={
        "graph_optimization_level": "ORT_ENABLE_BASIC",
        "session.set_denormal_as_zero": True,
        "intra_op_num_threads": 2,
    },
)
TABLE: dict[str, Any] = {"layout": "NCHW", "colour": "RGB", "range": (0, 1)}
NORMALIZED = {**TABLE, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def publish(spec: ModelSpec, example: tuple[ExampleTensor, ...] = ()) -> Publication:
    return Publication(
        model="net",
        opset=18,
        is_green=True,
        sha256="",
        tools={},
        data_sets=(),
        allowed=(),
        records=(make_record("net/18/cpu"),),
        sources={},
        preprocess={each.name: each.preprocess for each in spec.inputs if each.preprocess},
        example=example,
    )


def declare(*tables: dict[str, Any] | None, shape: tuple[int | str, ...]) -> ModelSpec:
    inputs = tuple(
        Input(
            name=f"x{index}",
            shape=shape,
            at=f"args[{index}]",
            preprocess=Preprocess(**table) if table else None,
        )
        for index, table in enumerate(tables)
    )
    output = Output(name='a "name"', shape=("batch", 2), labels=("cat", "dog"))
    return make_spec("net", inputs=inputs, outputs=(output,))


@pytest.mark.parametrize(
    ("table", "shape"),
    [
        (TABLE, (1, 3, 24, 32)),
        (NORMALIZED, ("batch", 3, "height", "width")),
        ({**TABLE, "colour": "BGR", "range": (0, 255)}, (1, 3, 20, 12)),
        ({**TABLE, "layout": "HWC", "range": (-1, 1)}, (20, 12, 3)),
        ({**NORMALIZED, "size": (20, 12), "resize": "bicubic"}, (1, 3, "h", "w")),
        ({**TABLE, "layout": "HW", "colour": "L", "mean": (0.5,)}, (20, 12)),
        ({**TABLE, "layout": "NCHW", "colour": "L", "std": (0.5,)}, (1, 1, 20, 12)),
    ],
)
def test_the_code_prepares_a_picture_as_the_proof_does(
    table: dict[str, Any], shape: tuple[int | str, ...], tmp_path: Path
) -> None:
    array = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    Image.fromarray(array).save(tmp_path / "picture.png")
    spec = declare(table, shape=shape)
    code = write_sample_code(publish(spec), spec, None)
    names: dict[str, Any] = {}
    exec(code.partition("\n\n\noptions = ")[0], names)
    prepared = names["prepare"](tmp_path / "picture.png")
    (item,) = spec.inputs
    assert item.preprocess is not None
    expected = prepare_picture(item, item.preprocess, tmp_path / "picture.png")
    np.testing.assert_allclose(prepared, expected, rtol=1e-6, atol=1e-6)
    assert prepared.dtype == expected.dtype
    compile(code, "card", "exec")


@pytest.mark.parametrize(
    "table",
    [
        None,
        {"range": (0, 1)},
        {"layout": "NCHW", "colour": "RGB"},
        {"function": "my-loader.py:read"},
    ],
)
def test_there_is_no_code_for_an_unknown_preparation(table: dict[str, Any] | None) -> None:
    spec = declare(TABLE, table, shape=(1, 3, 8, 8))
    assert write_sample_code(publish(spec), spec, None) == ""


def test_a_function_of_the_project_is_imported() -> None:
    spec = declare({"function": "../serving/load.py:read"}, TABLE, shape=(1, 3, 8, 8))
    code = write_sample_code(publish(spec), spec, None)
    assert "from load import read as prepare_0\n" in code
    assert 'inputs = {"x0": prepare_0("sample"), "x1": prepare_1("sample")}\n' in code
    compile(code, "card", "exec")


def test_a_session_has_the_settings_of_the_proof() -> None:
    provider = '("CUDAExecutionProvider", {"use_tf32": "0"})'
    assert write_session(DEVICE).splitlines() == [
        "options = ort.SessionOptions()",
        "options.intra_op_num_threads = 2",
        "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC",
        'options.add_session_config_entry("session.set_denormal_as_zero", "1")',
        f'session = ort.InferenceSession("model.onnx", options, providers=[{provider}])',
    ]


def test_the_program_of_cpp_has_all_raw_tensors() -> None:
    spec = declare(None, shape=(1, 3))
    tensors = (
        ExampleTensor(name="x0", file="example/input_0.bin", dtype="int64", shape=(1, 3)),
        ExampleTensor(name='a "name"', file="example/output_0.bin", dtype="bool", shape=()),
    )
    code = write_cpp(publish(spec, tensors), spec, DEVICE)
    for line in (
        "options.SetGraphOptimizationLevel(ORT_ENABLE_BASIC);",
        'options.AddConfigEntry("session.set_denormal_as_zero", "1");',
        "options.SetIntraOpNumThreads(2);",
        "std::vector<int64_t> shape_0{1, 3};",
        "ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));",
        'compare<bool>("a \\"name\\"", results[0], read("example/output_0.bin"));',
    ):
        assert line in code, code
    half = (tensors[0].model_copy(update={"dtype": "float16"}), tensors[1])
    assert write_cpp(publish(spec, half), spec, DEVICE) == ""
    assert write_cpp(publish(spec), spec, DEVICE) == ""
