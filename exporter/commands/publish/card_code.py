"""The programs on the card of a published file: they run it with the settings of its proof."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from exporter.commands.publish.published_folder import MARKER, MODEL, ExampleTensor, Publication
from exporter.manifest import Device, Input, ModelSpec, Preprocess

_LEVEL = "graph_optimization_level"
#: The dtype of a raw tensor -> its types in C++ and in ONNX.
_TYPES = {
    "float32": ("float", "FLOAT"),
    "float64": ("double", "DOUBLE"),
    "int64": ("int64_t", "INT64"),
    "int32": ("int32_t", "INT32"),
    "int16": ("int16_t", "INT16"),
    "int8": ("int8_t", "INT8"),
    "uint8": ("uint8_t", "UINT8"),
    "bool": ("bool", "BOOL"),
}
_CPP = """// With the headers and the library of ONNX Runtime in RUNTIME; save as run.cpp:
// g++ -std=c++17 run.cpp -IRUNTIME/include -LRUNTIME/lib -lonnxruntime -o run
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

std::vector<char> read(const char* path) {{
  std::ifstream file(path, std::ios::binary);
  return {{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}};
}}

template <typename T>
void compare(const char* name, const Ort::Value& value, std::vector<char> bytes) {{
  const T* expected = reinterpret_cast<const T*>(bytes.data());
  const T* actual = value.GetTensorData<T>();
  double error = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i)
    error = std::max(error, std::abs(double(actual[i]) - double(expected[i])));
  std::printf("%s largest error %g\\n", name, error);
}}

int main() {{
  Ort::Env env;
  Ort::SessionOptions options;
{options}
  Ort::Session session(env, "model.onnx", options);
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const char* input_names[] = {{{inputs}}};
  const char* output_names[] = {{{outputs}}};
{tensors}
  std::vector<Ort::Value> values;
{values}
  auto results = session.Run(Ort::RunOptions{{nullptr}}, input_names, values.data(), values.size(),
                             output_names, {count});
{compared}
}}
"""


def write_session(device: Device | None, file: str = f'"{MODEL}"') -> str:
    """Return lines of Python that open a session with the settings of a device.

    `file`: The expression for its path.
    """
    settings = _list_options(device)
    lines = ["options = ort.SessionOptions()"]
    for name, value in settings.items():
        if "." in name:
            lines.append(f"options.add_session_config_entry({quote(name)}, {quote(_text(value))})")
        elif name == _LEVEL:
            lines.append(f"options.{name} = ort.GraphOptimizationLevel.{value}")
        else:
            lines.append(f"options.{name} = {value!r}")
    tables = device.provider_settings if device else {}
    providers = [
        f"({quote(name)}, {json.dumps(table)})" if table else quote(name)
        for name, table in tables.items()
    ]
    chosen = ", ".join(providers) or quote("CPUExecutionProvider")
    lines.append(f"session = ort.InferenceSession({file}, options, providers=[{chosen}])")
    return "\n".join(lines)


def _list_options(device: Device | None) -> Mapping[str, bool | int | float | str]:
    """Return the options of a device that every machine has; a path is of a machine."""
    options = device.session_settings if device else {}
    return {name: value for name, value in options.items() if "/" not in str(value)}


def _text(value: bool | float | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def write_sample_code(publication: Publication, spec: ModelSpec, device: Device | None) -> str:
    """Return a program that prepares a sample, runs the file and names the classes, or "".

    It needs the preparation of each input; see `Preprocess`.
    """
    tables = [publication.preprocess.get(item.name) for item in spec.inputs]
    if not all(table and is_complete(table) for table in tables):
        return ""
    pairs = [
        (f"prepare_{index}" if len(tables) > 1 else "prepare", item, table)
        for index, (item, table) in enumerate(zip(spec.inputs, tables, strict=True))
        if table
    ]
    inputs = ", ".join(f'{quote(item.name)}: {name}("sample")' for name, item, _ in pairs)
    names = json.dumps([item.name for item in spec.outputs])
    lines = ["import json", "", "import numpy as np", "import onnxruntime as ort"]
    if any(not table.function for *_, table in pairs):
        lines.append("from PIL import Image  # pip install pillow")
    for name, item, table in pairs:
        if table.function:
            function = table.function.rpartition(":")[2]
            lines.append(f"from {_find_module(table.function)} import {function} as {name}")
        else:
            lines += ["", "", *_write_preparation(name, item, table)]
    lines += ["", "", write_session(device), f"inputs = {{{inputs}}}"]
    lines.append(f"outputs = dict(zip({names}, session.run({names}, inputs)))")
    lines.append("print({name: array.shape for name, array in outputs.items()})")
    for output in spec.outputs:
        if output.labels:
            key = quote(output.name)
            largest = ".argmax(-1)" if "float" in output.dtype else ""
            lines += [
                f'labels = json.load(open("{MARKER}", encoding="utf-8"))["labels"][{key}]',
                f"print([labels[index] for index in outputs[{key}]{largest}.ravel()])",
            ]
    return "\n".join(lines)


def is_complete(table: Preprocess) -> bool:
    """Return whether a table has a function that can be imported, or all keys for a picture."""
    if table.function:
        return _find_module(table.function).isidentifier()
    return bool(table.colour and table.range and {"H", "W"} <= {*table.layout} <= {*"NCHW"})


def _find_module(function: str) -> str:
    return posixpath.basename(function.rpartition(":")[0]).removesuffix(".py")


def _write_preparation(name: str, item: Input, table: Preprocess) -> Iterator[str]:
    """Yield a function of Python with what `prepare_picture` does for the proof."""
    dims = dict(zip(table.layout, item.shape, strict=True))
    height, width = table.size or (dims["H"], dims["W"])
    mode = "L" if table.colour == "L" else "RGB"
    low, high = table.range or (0.0, 255.0)
    yield f"def {name}(path):"
    yield f"    picture = Image.open(path).convert({quote(mode)})"
    if isinstance(height, int) and isinstance(width, int):
        filter = table.resize.upper()
        yield f"    picture = picture.resize(({width}, {height}), Image.Resampling.{filter})"
    yield "    pixels = np.asarray(picture, np.float64)"
    yield "    pixels = pixels.reshape(picture.height, picture.width, -1)"
    if table.colour == "BGR":
        yield "    pixels = pixels[..., ::-1]"
    yield f"    values = {low:g} + pixels * ({high - low:g} / 255)"
    if table.mean:
        yield f"    values = values - {[*table.mean]}"
    if table.std:
        yield f"    values = values / {[*table.std]}"
    order = table.layout.lower()
    yield f'    return np.einsum("nhwc->{order}", values[None]).astype("{item.file_dtype}")'


def write_cpp(publication: Publication, spec: ModelSpec, device: Device | None) -> str:
    """Return a program of C++ that runs the file on its raw tensors, or "" if there is none."""
    example = publication.example
    if not example or any(each.dtype not in _TYPES for each in example):
        return ""
    names = {output.name for output in spec.outputs}
    given = [each for each in example if "/input_" in each.file]
    results = [each for each in example if each.name in names and each not in given]
    lines = [*_write_cpp_options(device)]
    count = len(results)
    compared = (
        f"  compare<{_TYPES[each.dtype][0]}>({quote(each.name)}, results[{index}], "
        f"read({quote(each.file)}));"
        for index, each in enumerate(results)
    )
    return _CPP.format(
        options="\n".join(lines),
        inputs=_join(given),
        outputs=_join(results),
        tensors="\n".join(_write_tensors(given)),
        values="\n".join(_write_values(given)),
        count=count,
        compared="\n".join(compared),
    )


def _join(tensors: Sequence[ExampleTensor]) -> str:
    return ", ".join(quote(each.name) for each in tensors)


def _write_cpp_options(device: Device | None) -> Iterator[str]:
    for name, value in _list_options(device).items():
        if name == _LEVEL:
            yield f"  options.SetGraphOptimizationLevel({value});"
        elif name == "intra_op_num_threads":
            yield f"  options.SetIntraOpNumThreads({value});"
        elif "." in name:
            yield f"  options.AddConfigEntry({quote(name)}, {quote(_text(value))});"


def _write_tensors(tensors: Sequence[ExampleTensor]) -> Iterator[str]:
    for index, each in enumerate(tensors):
        shape = ", ".join(map(str, each.shape))
        yield f"  auto data_{index} = read({quote(each.file)});"
        yield f"  std::vector<int64_t> shape_{index}{{{shape}}};"


def _write_values(tensors: Sequence[ExampleTensor]) -> Iterator[str]:
    for index, each in enumerate(tensors):
        data, shape = f"data_{index}", f"shape_{index}"
        yield "  values.push_back(Ort::Value::CreateTensor("
        yield f"      memory, {data}.data(), {data}.size(), {shape}.data(), {shape}.size(),"
        yield f"      ONNX_TENSOR_ELEMENT_DATA_TYPE_{_TYPES[each.dtype][1]}));"
