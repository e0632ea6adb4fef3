"""The kinds of values that users write, as annotated types: checked, described, in the schema.

In: what tomli read. Out: the types that the tables of `entry.py` and `settings.py` are made of.
A validator here raises ValueError with the whole message; `messages.py` adds file, line and key.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from exporter.core.command_names import NAME_PLACEHOLDER
from exporter.core.errors import suggest_nearest
from exporter.core.frozen_model import Items, Plain
from exporter.manifest.syntax.call_paths import parse_call_path
from exporter.manifest.syntax.message_format import format_value, join_words, unexpected_value
from exporter.manifest.syntax.opsets import parse_condition, parse_opsets
from exporter.manifest.syntax.tensor_files import DATA_SUFFIXES, split_data_file

DTYPES = (
    "float32", "float16", "bfloat16", "float64",
    "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip

#: Names by which people know the dtypes, for suggestions.
_DTYPE_ALIASES = {
    "float": "float32", "half": "float16", "double": "float64", "fp32": "float32",
    "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "f32": "float32", "f16": "float16",
    "long": "int64", "int": "int32", "short": "int16", "byte": "uint8", "char": "int8",
    "boolean": "bool", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip

#: Sizes beyond this are slips of the hand, and primes beyond it take long to find.
MAX_SIZE = 2**31 - 1

#: What a table that repeats has its number in.
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
MAX_COPIES = 1000

#: What stands in a case for an optional input that is left out.
OMITTED = "none"

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 30 * 24 * 3600.0
_LEAST_MEMORY = 10**6


class NestedProblem(ValueError):
    """A problem inside a nested value: `path` leads to it."""

    def __init__(self, path: tuple[int | str, ...], message: str) -> None:
        self.path = path
        super().__init__(message)


def _line_of_text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    if not value.isprintable():
        raise unexpected_value("one line of printable text", value)
    return value


def _command(value: str) -> str:
    if _line_of_text(value).count(NAME_PLACEHOLDER) != 1 or "`" in value:
        raise unexpected_value("one '{}', where the name of the command goes", value)
    return value


def _name(value: str) -> str:
    if not value or not value.isprintable() or value != value.strip():
        raise unexpected_value("a name of printable characters", value)
    return value


def _axis_name(value: str) -> str:
    _name(value)
    if re.fullmatch(r"[+-]?\d+", value):
        raise ValueError(
            f"expected an axis name, got {format_value(value)}; a size stands without quotes"
        )
    return value


def _dim(value: object) -> int | str:
    match value:
        case bool():
            pass
        case int() if 0 <= value <= MAX_SIZE:
            return value
        case int() if value < 0:
            message = f"expected a size of at least 0, got {value}; a dynamic axis gets a name"
            raise ValueError(message)
        case int():
            raise unexpected_value(f"a size of at most {MAX_SIZE}", value)
        case str():
            return _axis_name(value)
    raise unexpected_value("an int or an axis name", value)


def _dtype(value: object) -> str:
    if not isinstance(value, str):
        raise unexpected_value("the name of a dtype", value)
    if value in DTYPES:
        return value
    bare = value.removeprefix("torch.").lower()
    known = bare if bare in DTYPES else _DTYPE_ALIASES.get(bare)
    hint = f"; did you mean '{known}'?" if known else suggest_nearest(bare, DTYPES)
    raise ValueError(f"no dtype of PyTorch's is called {format_value(value)}{hint}")


def _at(value: str) -> str:
    try:
        parse_call_path(PLACEHOLDER.sub("0", value))
    except ValueError as error:
        raise ValueError(f"{error}, got {format_value(value)}") from None
    return value


def _tensor(value: object) -> Any:
    match value:
        case bool() | int() | float():
            return value
        case list():
            return [_inside(index, _tensor, item) for index, item in enumerate(value)]
    raise unexpected_value("a number, true, false or a list of them", value)


def _case_value(value: object) -> Any:
    match value:
        case str() if value == OMITTED:
            return value
        case str():
            raise unexpected_value(
                f'a number, true, false, a list of them, "{OMITTED}" or {{ file = … }}', value
            )
        case dict():
            if set(value) != {"file"}:
                raise ValueError('a table has exactly one key here: { file = "x.npy" }')
            if not isinstance(value["file"], str):
                raise NestedProblem(("file",), str(unexpected_value("text", value["file"])))
            return {"file": _inside("file", _data_file, value["file"])}
    return _tensor(value)


def _data_file(value: object) -> str:
    text = _line_of_text(str(value))
    path, key = split_data_file(text)
    suffix = path[path.rfind(".") :] if "." in path else ""
    if suffix not in DATA_SUFFIXES:
        raise unexpected_value(f"a file that ends in {join_words(DATA_SUFFIXES, 'or')}", text)
    if DATA_SUFFIXES[suffix] and not key:
        raise ValueError(f'says which tensor of the file: "{path}:KEY", got {format_value(text)}')
    if key and not DATA_SUFFIXES[suffix]:
        raise ValueError(f"a file that ends in {suffix} holds one tensor; leave out ':{key}'")
    return text


def _repeat(value: object) -> dict[str, int]:
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


def _plain(value: object) -> Any:
    match value:
        case bool() | int() | float() | str():
            return value
        case list():
            return [_inside(index, _plain, item) for index, item in enumerate(value)]
        case dict():
            return {key: _inside(key, _plain, item) for key, item in value.items()}
    raise unexpected_value("text, a number, true, false, a list or a table", value)


def _inside(step: int | str, check: Callable[[object], Any], value: object) -> Any:
    try:
        return check(value)
    except NestedProblem as error:
        raise NestedProblem((step, *error.path), str(error)) from None
    except ValueError as error:
        raise NestedProblem((step,), str(error)) from None


def _timeout(value: object) -> float:
    form = 'a number of seconds above 0, or a time such as "90s", "10m" or "1h"'
    match value:
        case bool():
            raise unexpected_value(form, value)
        case int() if 0 < value <= _LONGEST:
            return float(value)
        case str() if found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([smh])", value, re.ASCII):
            seconds = float(found[1]) * _UNITS[found[2]]
            if 0 < seconds <= _LONGEST:
                return seconds
    raise unexpected_value(form, value)


def _memory(value: object) -> int:
    """Bytes. Units of 1000 as people write them (`MB`), and of 1024 (`MiB`)."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT])(i?)B", value, re.ASCII)
        if found:
            power = "KMGT".index(found[2]) + 1
            size = int(float(found[1]) * (1024 if found[3] else 1000) ** power)
            if size >= _LEAST_MEMORY:
                return size
    raise unexpected_value('a size of at least 1MB, such as "500MB" or "8GiB"', value)


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise unexpected_value("a sha256 of 64 hexadecimal digits", value)
    return value.lower()


def _export_device(value: str) -> str:
    if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:(0|[1-9]\d?))?", value, re.ASCII):
        raise unexpected_value('a device of PyTorch\'s such as "cpu", "cuda" or "cuda:1"', value)
    return value


def _day(value: object) -> str:
    match value:
        case dt.datetime():
            pass
        case dt.date():
            return value.isoformat()
        case str() if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
            try:
                return dt.date.fromisoformat(value).isoformat()
            except ValueError:
                pass
    raise unexpected_value('a date such as "2027-06-30"', value)


def _folder(value: str) -> str:
    _line_of_text(value)
    parts = value.split("/")
    if not all(parts) or ".." in parts or "." in parts or re.search(r"[\\:]", value):
        raise unexpected_value('a folder inside the project, such as "out/build"', value)
    return value


def _index_key(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"0|[1-9]\d{0,3}", value, re.ASCII):
        return int(value)
    raise unexpected_value("the index of a dimension", value)


#: Tags for the spellings of a key; as steps of pydantic's paths they mean nothing to users.
FORM_TAGS = ("<text>", "<table>", "<list>", "[key]")


def discriminate_form(what: str) -> Discriminator:
    """Chooses between spellings that are tagged `<text>`, `<table>` and `<list>`."""
    return Discriminator(_form_of, "form", what)


def _form_of(value: object) -> str | None:
    match value:
        case str():
            return "<text>"
        case dict():
            return "<table>"
        case list() | tuple():
            return "<list>"
    return None


_OPSETS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 7, "maximum": 26},
        {"type": "string"},
        {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
    ],
    "examples": [17, "9..21", [13, "17..20"]],
}
_TENSOR_SCHEMA = {"type": ["boolean", "number", "array"]}

Line = Annotated[str, AfterValidator(_line_of_text)]
Name = Annotated[str, AfterValidator(_name)]
Command = Annotated[str, AfterValidator(_command)]
Folder = Annotated[str, AfterValidator(_folder)]
AxisName = Annotated[str, AfterValidator(_axis_name)]
DimField = Annotated[
    int | str,
    PlainValidator(_dim),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]
Dtype = Annotated[str, PlainValidator(_dtype), WithJsonSchema({"enum": list(DTYPES)})]
At = Annotated[str, AfterValidator(_at)]
DataFile = Annotated[str, AfterValidator(_data_file)]
Repeat = Annotated[
    dict[str, int],
    PlainValidator(_repeat),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_COPIES},
            "minProperties": 1,
            "maxProperties": 1,
        }
    ),
]
CaseValue = Annotated[
    Any,
    PlainValidator(_case_value),
    WithJsonSchema(
        {
            "anyOf": [
                _TENSOR_SCHEMA,
                {"const": OMITTED, "type": "string"},
                {"type": "object", "properties": {"file": {"type": "string"}}},
            ]
        }
    ),
]
TensorField = Annotated[Any, PlainValidator(_tensor), WithJsonSchema(_TENSOR_SCHEMA)]
PlainField = Annotated[Plain, PlainValidator(_plain), WithJsonSchema({})]
Timeout = Annotated[
    float,
    PlainValidator(_timeout),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]}),
]
Memory = Annotated[
    int,
    PlainValidator(_memory),
    WithJsonSchema({"type": "string", "examples": ["500MB", "8GiB"]}),
]
Sha256 = Annotated[
    str,
    AfterValidator(_sha256),
    WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
]
ExportDevice = Annotated[
    str,
    AfterValidator(_export_device),
    WithJsonSchema({"type": "string", "examples": ["cpu", "cuda", "cuda:1"]}),
]
Day = Annotated[
    str, PlainValidator(_day), WithJsonSchema({"type": "string", "examples": ["2027-06-30"]})
]
Opsets = Annotated[tuple[int, ...], PlainValidator(parse_opsets), WithJsonSchema(_OPSETS_SCHEMA)]
OpsetCondition = Annotated[
    tuple[int, ...],
    PlainValidator(parse_condition),
    WithJsonSchema({**_OPSETS_SCHEMA, "examples": [7, "<14", ">=18", "9..13", [9, "16..17"], "*"]}),
]
Size = Annotated[int, Field(ge=0, le=MAX_SIZE)]
AxisSize = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Example = Annotated[Size, Field(json_schema_extra={"minimum": 2})]
Real = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=9999)]
IndexKey = Annotated[int, BeforeValidator(_index_key), WithJsonSchema({"type": "string"})]
Pair = Annotated[Items[Real], Field(min_length=2, max_length=2)]
IntPair = Annotated[Items[int], Field(min_length=2, max_length=2)]
RuntimeName = Literal["onnxruntime", "openvino", "reference", "backend"]
