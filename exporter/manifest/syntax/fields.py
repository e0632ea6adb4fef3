"""The annotated types of manifest values, with their validation and JSON Schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from exporter.core.errors import suggest_nearest
from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.core.import_object import RUNTIME_GROUP, find_plugins
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.manifest.syntax.values import (
    DATA_SUFFIXES,
    FIRST_OPSET,
    IMAGE_SUFFIXES,
    LAST_OPSET,
    check_requirement,
    check_version_range,
    format_value,
    join_words,
    parse_call_path,
    parse_check_names,
    parse_condition,
    parse_opsets,
    quote,
    split_data_file,
    unexpected_value,
)

FLOATS = ("float32", "float16", "bfloat16", "float64")
DTYPES = (
    "float32", "float16", "bfloat16", "float64",
    "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip

#: Other common names of dtypes, for suggestions.
_DTYPE_ALIASES = {
    "float": "float32", "half": "float16", "double": "float64", "fp32": "float32",
    "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "f32": "float32", "f16": "float16",
    "long": "int64", "int": "int32", "short": "int16", "byte": "uint8", "char": "int8",
    "boolean": "bool", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


def check_dtype(value: object) -> str:
    """Return the name of a dtype.

    Raises:
        ValueError: If PyTorch has no such dtype, with the nearest name.
    """
    if not isinstance(value, str):
        raise unexpected_value("the name of a dtype", value)
    if value in DTYPES:
        return value
    bare = value.removeprefix("torch.").lower()
    similar = bare if bare in DTYPES else _DTYPE_ALIASES.get(bare)
    hint = f"; did you mean '{similar}'?" if similar else suggest_nearest(bare, DTYPES)
    raise ValueError(f"PyTorch has no dtype {format_value(value)}{hint}")


_PRECISION = 'use `precision = "float16"`'
_TOLERANCE = "use `tolerance = { atol = 1e-4 }`"

_DYNAMIC = "use names instead of sizes in `shape`"
_NAME = 'write a name for a dynamic axis, such as "batch"'
#: Words of `torch.export.Dim` in place of a dimension, by the last part of the word.
DIM_WORDS: Mapping[str, str] = {
    "AUTO": f"{_NAME}, or a size: a manifest promises one of the two",
    "DYNAMIC": _NAME,
    "STATIC": "write the size",
}

#: Words in `[models.ID]` and `[defaults]`, in addition to the arguments of `torch.onnx.export`.
MODEL_KEYS: Mapping[str, str] = {
    "args": "use `init` for the call of the source, `inputs` and `constants` for the model's",
    "kwargs": "use `init` for the call of the source, `inputs` with `at` for the model's",
    "atol": _TOLERANCE,
    "rtol": _TOLERANCE,
    "checkpoint": "use `weights`",
    "device": 'use `devices = ["cpu"]`, and `export_device` for PyTorch',
    "export_state": "remove it: an export without gradients is tried first, then a plain one",
    "homepage": "write it into `description`",
    "unset": "write another value, or keep the key out of the parent and of [defaults]",
    "dtype": _PRECISION,
    "fp16": _PRECISION,
    "half": _PRECISION,
    "dynamic": _DYNAMIC,
    "strict": "use `capture = 'strict'`",
    "name": "the ID is the name of the table: `[models.ID]`",
    "runtime": "use `devices`, and `[tool.exporter.devices.NAME]` with `runtime`",
}
#: The same for an item of `inputs`.
INPUT_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("min", "max"), "use `fill` for limits of values, `axes.NAME` for sizes"),
    **dict.fromkeys(("low", "high"), "use `fill = { uniform = [0, 1] }` or `randint`"),
    **dict.fromkeys(
        ("data", "value", "values"),
        "use `fill = { value = 3 }`, `{ randint = [0, 10] }` or `{ file = ... }`",
    ),
    **dict.fromkeys(("dynamic", "dynamic_axes", "dynamic_shapes"), _DYNAMIC),
    "path": "use `fill = { file = ... }` for values, `at` for the place in the call",
    "size": "use `shape`",
    "type": "use `dtype`",
}
#: The same for an item of `outputs`.
OUTPUT_KEYS: Mapping[str, str] = {
    "atol": _TOLERANCE,
    "rtol": _TOLERANCE,
    **dict.fromkeys(("dynamic", "dynamic_axes", "dynamic_shapes"), _DYNAMIC),
    "size": "use `shape`",
    "type": "use `dtype`",
}
#: The same for an item of `axes`.
AXIS_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("auto", "dim", "dynamic", "static"), "use a name or a size in `shape`"),
    "dilation": "use `kernel`, with its size as `dilation * (kernel - 1) + 1`",
    "probe": 'use a case of this size: `cases = [{ name = "five", axes = { batch = 5 } }]`',
    "size": "use `example`",
}


def find_dim_advice(text: str) -> str:
    """Return the advice for a word of `torch.export.Dim`, or ""."""
    prefix, _, word = text.rpartition(".")
    is_word = prefix in ("Dim", "torch.export.Dim") and word in DIM_WORDS
    return DIM_WORDS[word] if is_word else ""


#: Larger sizes are mistakes, and the search for larger primes is slow.
MAX_SIZE = 2**31 - 1

#: The place of the number in a table with `repeat`.
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
#: Copies of one table with `repeat`.
MAX_COPIES = 1000

#: A part that names of axes do not have, and an expression of two sizes.
_EXPRESSION = re.compile(r"[*+]|\s[-/]+\s|\w\s*[-/%]+\s*\d+$")
_TWO_SIZES = re.compile(r"(\w+)\s*([*+-]|//?)\s*(\w+)", re.ASCII)
_RULES = {"*": "product", "+": "sum", "-": "difference"}

#: The value of an optional input that a case omits.
OMITTED = "none"

#: Seconds of each unit of a time limit.
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: Seconds: 30 days, the highest time limit.
#: The largest `timeout`.
MAX_SECONDS = 30 * 24 * 3600.0
#: Bytes.
_MIN_MEMORY = 10**6


class NestedProblem(ValueError):
    """A problem inside a nested value, with its path."""

    def __init__(self, path: tuple[int | str, ...], message: str) -> None:
        self.path = path
        super().__init__(message)


def _check_line(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    if not value.isprintable():
        raise unexpected_value("one line of printable text", value)
    return value


def _check_name(value: str) -> str:
    if not value or not value.isprintable() or value != value.strip():
        raise unexpected_value("a name of printable characters", value)
    return value


def require_match(pattern: str, expected: str) -> AfterValidator:
    """Return the check of a text that must match the whole pattern; see `unexpected_value`."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise unexpected_value(expected, value)
        return value

    return AfterValidator(check)


def _check_axis_name(value: str) -> str:
    _check_name(value)
    if advice := find_dim_advice(value):
        raise ValueError(f"{format_value(value)} is a word of torch.export; {advice}")
    if advice := _find_expression_advice(value):
        raise ValueError(advice)
    if re.fullmatch(r"[+-]?\d+", value):
        raise ValueError(
            f"expected an axis name, got {format_value(value)}; write a size without quotes"
        )
    return value


def _find_expression_advice(text: str) -> str:
    """Return the derived axis to write for an expression of sizes, or "" if it is a name."""
    if not _EXPRESSION.search(text):
        return ""
    advice = "write a name, and compute its size in `axes` with sum, difference, product or of"
    if match := _TWO_SIZES.fullmatch(text):
        first, second = (each if each.isdecimal() else quote(each) for each in match.group(1, 3))
        rule = f"of = {first}, stride = {second}"
        if match[2] in _RULES:
            rule = f"{_RULES[match[2]]} = [{first}, {second}]"
        advice = f'write a name such as "size", and axes.size = {{ {rule} }}'
    return f"{quote(text)} is an expression, not a name; {advice}"


def _check_dim(value: object) -> int | str:
    match value:
        case bool():
            pass
        case int() if 0 <= value <= MAX_SIZE:
            return value
        case int() if value < 0:
            message = f"expected a size of at least 0, got {value}; write a name for a dynamic axis"
            raise ValueError(message)
        case int():
            raise unexpected_value(f"a size of at most {MAX_SIZE}", value)
        case str():
            return _check_axis_name(value)
    raise unexpected_value("an int or an axis name", value)


def _check_end(value: object) -> int | str:
    if isinstance(value, str):
        return _check_axis_name(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise unexpected_value("an integer or an axis name", value)
    return value


def _check_call_path(value: str) -> str:
    try:
        parse_call_path(PLACEHOLDER.sub("0", value))
    except ValueError as error:
        raise ValueError(f"{error}, got {format_value(value)}") from None
    return value


def _check_tensor(value: object) -> Any:
    match value:
        case bool() | int() | float():
            return value
        case list():
            return [_check_item(index, _check_tensor, item) for index, item in enumerate(value)]
    raise unexpected_value("a number, true, false or a list of them", value)


def _check_data_file(value: object) -> str:
    text = _check_line(str(value))
    path, key = split_data_file(text)
    suffix = path[path.rfind(".") :] if "." in path else ""
    if suffix not in DATA_SUFFIXES:
        raise unexpected_value(f"a file that ends in {join_words(DATA_SUFFIXES, 'or')}", text)
    if DATA_SUFFIXES[suffix] and not key:
        raise ValueError(
            f'expected the key of a tensor in the file, "{path}:KEY", got {format_value(text)}'
        )
    if key and not DATA_SUFFIXES[suffix]:
        raise ValueError(f"a {suffix} file contains only one tensor; remove ':{key}'")
    return text


def _check_repeat(value: object) -> dict[str, int]:
    form = "a table of one count, such as { layer = 12 }"
    if not isinstance(value, dict) or len(value) != 1:
        raise unexpected_value(form, value)
    ((name, count),) = value.items()
    if not PLACEHOLDER.fullmatch(f"{{{name}}}"):
        raise unexpected_value("a name of letters, digits and '_'", name)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COPIES:
        raise NestedProblem(
            (name,), str(unexpected_value(f"a count from 1 to {MAX_COPIES}", count))
        )
    return {name: count}


def _check_plain(value: object) -> Any:
    match value:
        case bool() | int() | float() | str():
            return value
        case list():
            return [_check_item(index, _check_plain, item) for index, item in enumerate(value)]
        case dict():
            return {key: _check_item(key, _check_plain, item) for key, item in value.items()}
    raise unexpected_value("text, a number, true, false, a list or a table", value)


def _check_item(step: int | str, check: Callable[[object], Any], value: object) -> Any:
    try:
        return check(value)
    except NestedProblem as error:
        raise NestedProblem((step, *error.path), str(error)) from None
    except ValueError as error:
        raise NestedProblem((step,), str(error)) from None


def _check_step_values(value: object) -> str | tuple[bool | int | float, ...]:
    """Return the name of a function, or a number for each step."""
    if isinstance(value, str):
        return _check_line(value)
    if isinstance(value, list | tuple) and value:
        numbers = [each for each in value if isinstance(each, bool | int | float)]
        if len(numbers) == len(value) and all(map(math.isfinite, numbers)):
            return tuple(numbers)
    raise unexpected_value('"file.py:function" or a list with a number for each step', value)


def _parse_timeout(value: object) -> float:
    form = 'a number of seconds above 0, or a time such as "90s", "10m" or "1h"'
    match value:
        case bool():
            raise unexpected_value(form, value)
        case int() if 0 < value <= MAX_SECONDS:
            return float(value)
        case str() if match := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([smh])", value, re.ASCII):
            seconds = float(match[1]) * _UNITS[match[2]]
            if 0 < seconds <= MAX_SECONDS:
                return seconds
    raise unexpected_value(form, value)


def _parse_memory(value: object) -> int:
    """Return bytes; `MB` is decimal and `MiB` is binary."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT])(i?)B", value, re.ASCII)
        if match:
            power = "KMGT".index(match[2]) + 1
            size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
            if size >= _MIN_MEMORY:
                return size
    raise unexpected_value('a size of at least 1MB, such as "500MB" or "8GiB"', value)


def _check_runtime(value: str) -> str:
    # Plugins are listed only for a name that is not built in.
    if value in RUNTIMES or value in (plugins := find_plugins(RUNTIME_GROUP)):
        return value
    runtimes = (*RUNTIMES, *plugins)
    expected = f"the name of a runtime: {join_words(map(quote, runtimes), 'or')}"
    hint = suggest_nearest(value, runtimes) or "; install the plugin that provides it"
    raise ValueError(f"{unexpected_value(expected, value)}{hint}")


def _parse_index(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"0|[1-9]\d{0,3}", value, re.ASCII):
        return int(value)
    raise unexpected_value("the index of a dimension", value)


#: Steps of pydantic's error paths that are not keys of the user.
FORM_TAGS = ("<bool>", "<text>", "<table>", "<list>", "[key]")


def discriminate_form(message: str, *, takes_numbers: bool = False) -> Discriminator:
    """Select the type with the tag `<text>`, `<table>` or `<list>` by the form of a value.

    `takes_numbers`: A number or Boolean has the tag `<list>`, too.
    """

    def select_tag(value: object) -> str | None:
        match value:
            case str():
                return "<text>"
            case dict() | FrozenModel():
                return "<table>"
            case list() | tuple():
                return "<list>"
            case bool() | int() | float() if takes_numbers:
                return "<list>"
        return None

    return Discriminator(select_tag, "form", message)


_OPSETS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": FIRST_OPSET, "maximum": LAST_OPSET},
        {"type": "string"},
        {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
    ],
    "examples": [17, "9..21", [13, "17..20"]],
}
_TENSOR_SCHEMA = {"type": ["boolean", "number", "array"]}

Line = Annotated[str, AfterValidator(_check_line)]
#: One name, or a list of names.
Names = Annotated[
    Items[Line],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Requirement = Annotated[Line, AfterValidator(check_requirement)]
Name = Annotated[str, AfterValidator(_check_name)]
Variable = Annotated[
    str,
    require_match(
        "[A-Za-z_][A-Za-z0-9_*?]*", 'the name of an environment variable, such as "HF_HOME"'
    ),
]
AxisName = Annotated[str, AfterValidator(_check_axis_name)]
DimField = Annotated[
    int | str,
    PlainValidator(_check_dim),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]
Dtype = Annotated[str, PlainValidator(check_dtype), WithJsonSchema({"enum": list(DTYPES)})]
CallPath = Annotated[str, AfterValidator(_check_call_path)]
DataFile = Annotated[str, AfterValidator(_check_data_file)]
ImageFile = Annotated[
    Line,
    require_match(
        rf"(?i).*({'|'.join(map(re.escape, IMAGE_SUFFIXES))})",
        f"a file that ends in {join_words(IMAGE_SUFFIXES, 'or')}",
    ),
]
Repeat = Annotated[
    dict[str, int],
    PlainValidator(_check_repeat),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_COPIES},
            "minProperties": 1,
            "maxProperties": 1,
        }
    ),
]
TensorField = Annotated[Any, PlainValidator(_check_tensor), WithJsonSchema(_TENSOR_SCHEMA)]
PlainField = Annotated[Plain, PlainValidator(_check_plain), WithJsonSchema({})]
StepValues = Annotated[
    str | tuple[bool | int | float, ...],
    PlainValidator(_check_step_values),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": ["boolean", "number"]}},
            ]
        }
    ),
]
Timeout = Annotated[
    float,
    PlainValidator(_parse_timeout),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]}),
]
Memory = Annotated[
    int,
    PlainValidator(_parse_memory),
    WithJsonSchema({"type": "string", "examples": ["500MB", "8GiB"]}),
]
Sha256 = Annotated[
    str,
    require_match("[0-9a-fA-F]{64}", "a sha256 of 64 hexadecimal digits"),
    AfterValidator(str.lower),
    WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
]
ModelVersion = Annotated[
    str, require_match(r"\d{1,9}|\d{1,4}\.\d{1,4}\.\d{1,9}", 'a version such as "3" or "1.2.0"')
]
ExportDevice = Annotated[
    str,
    require_match(
        r"cpu|mps|(cuda|xpu)(:(0|[1-9]\d?))?",
        'a device of PyTorch such as "cpu", "cuda" or "cuda:1"',
    ),
    WithJsonSchema({"type": "string", "examples": ["cpu", "cuda", "cuda:1"]}),
]
Opsets = Annotated[tuple[int, ...], PlainValidator(parse_opsets), WithJsonSchema(_OPSETS_SCHEMA)]
OpsetCondition = Annotated[
    tuple[int, ...],
    PlainValidator(parse_condition),
    WithJsonSchema({**_OPSETS_SCHEMA, "examples": [7, "<14", ">=18", "9..13", [9, "16..17"], "*"]}),
]
CheckNames = Annotated[
    tuple[str, ...],
    PlainValidator(parse_check_names),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ],
            "examples": ["parity", ["parity", "values"]],
        }
    ),
]
Size = Annotated[int, Field(ge=0, le=MAX_SIZE)]
AxisSize = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Example = Annotated[Size, Field(json_schema_extra={"minimum": 2})]
Real = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=9999)]
IndexKey = Annotated[int, BeforeValidator(_parse_index), WithJsonSchema({"type": "string"})]
Pair = Annotated[Items[Real], Field(min_length=2, max_length=2)]
IntegerRange = Annotated[
    Items[
        Annotated[
            int | str,
            PlainValidator(_check_end),
            WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ]
    ],
    Field(min_length=2, max_length=2),
]
RuntimeName = Annotated[
    str,
    AfterValidator(_check_runtime),
    WithJsonSchema({"anyOf": [{"enum": list(RUNTIMES)}, {"type": "string", "minLength": 1}]}),
]


VersionRange = Annotated[
    Line,
    AfterValidator(check_version_range),
    WithJsonSchema({"type": "string", "examples": ["<2.14", ">=2.12, <2.14"]}),
]
