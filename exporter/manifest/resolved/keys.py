"""The keys of an entry and of `[tool.exporter]` in the form of their value, each declared once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from exporter.core.errors import suggest_nearest
from exporter.core.frozen_model import Items
from exporter.core.text import DEFAULT_COMMAND, NAME_PLACEHOLDER
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.table import (
    DEFINITION,
    DESCRIPTION,
    FUNCTION,
    Key,
    Table,
    is_at_most,
    is_implied,
)
from exporter.manifest.syntax.values import (
    CaptureName,
    check_consumer,
    format_opsets,
    quote,
    unexpected_value,
)

Measure = Literal["latency", "load", "memory"]
Mode = Literal["eval", "train", "keep"]
Precision = Literal["float32", "float16", "bfloat16", "float64"]
#: The meaning of an upper limit of the file.
LIMIT = Key(is_as_strict=is_at_most, shown="at most {}".format)


class CustomOp(Table):
    """The export of an operator that ONNX lacks, and the kernels that run the result.

    Set at most one of `symbolic`, `onnxscript` and `translation`. Kernels can be in the same entry
    or in a separate one. If no installed runtime has a kernel, the cell is `unavailable`, never
    green. A function in the file (`onnxscript`) needs no kernel, and no kernel may replace it.
    Name the domains of all other operators in `options.custom_opsets` or in an entry of kernels.
    """

    name: fields.Line
    """PyTorch's operator: `"namespace::operator"` for TorchScript,
    `"namespace.operator.overload"` for dynamo. If the entry has only kernels: the operator of the
    file, `"domain::Operator"`."""
    symbolic: Annotated[fields.Line | None, FUNCTION] = None
    """TorchScript: `"file.py:function"`, called as `function(g, *arguments)`; it builds the nodes.
    As for `torch.onnx.register_custom_op_symbolic`."""
    onnxscript: Annotated[fields.Line | None, FUNCTION] = None
    """TorchScript: `"file.py:function"`, a function of onnxscript, which becomes a function in the
    file. Its inputs and attributes are the operator's arguments in order."""
    translation: Annotated[fields.Line | None, FUNCTION] = None
    """dynamo: `"file.py:function"`, written in onnxscript and called with the operator's arguments.
    As for `custom_translation_table` of `torch.onnx.export`."""
    opset: Annotated[int, Field(ge=1, le=99)] = 1
    """The first opset that this entry applies to. If an operator has
    several entries, the highest one that is not above the file's opset applies."""
    ort_library: Annotated[fields.Line | None, FUNCTION] = None
    """A library of kernels for ONNX Runtime: `"libfoo.so"`, relative to the manifest and inside
    the project, or `"package.module:function"` or `"file.py:function"`, which returns its path."""
    reference: Annotated[fields.Line | None, FUNCTION] = None
    """A kernel for onnx.reference: `"file.py:Class"`, an `onnx.reference.op_run.OpRun` with the
    operator's name and an `op_domain`."""

    @property
    def has_only_kernels(self) -> bool:
        """Whether the entry does not change the export."""
        return not (self.symbolic or self.onnxscript or self.translation)

    @model_validator(mode="after")
    def _check_one_export(self) -> CustomOp:
        if sum(map(bool, (self.symbolic, self.onnxscript, self.translation))) > 1:
            raise ValueError("takes only one of symbolic, onnxscript and translation")
        if self.has_only_kernels and not (self.ort_library or self.reference):
            raise ValueError(
                "needs one of symbolic, onnxscript and translation, "
                "or a kernel: ort_library or reference"
            )
        if self.has_only_kernels and self.opset != 1:
            raise ValueError("takes `opset` with symbolic, onnxscript or translation only")
        return self


class Metric(Table):
    """A figure of the model and of the file, such as an accuracy; a larger one is better."""

    call: Annotated[fields.Line, FUNCTION]
    """`"file.py:function"`: called with a function that runs the model or
    the file, it returns a number. That function takes arrays by the names of the inputs, and
    returns arrays by the names of the outputs."""
    least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The smallest figure of the file."""
    drop: fields.Amount | None = None
    """The largest difference by which the file's figure may be below PyTorch's."""

    @model_validator(mode="after")
    def _check_promise(self) -> Metric:
        if self.least is None and self.drop is None:
            raise ValueError("promises nothing; add `least` or `drop`")
        return self

    def implies(self, old: Metric) -> bool:
        least = [-math.inf if each.least is None else each.least for each in (old, self)]
        drop = [math.inf if each.drop is None else each.drop for each in (old, self)]
        return self.call == old.call and least[1] >= least[0] and drop[1] <= drop[0]


class Caller(Table):
    """A program of the project that runs the file, and PyTorch's results for the same samples.

    Set `call` or `command`.
    """

    call: fields.Line | None = None
    """`"infer.py:predict"`: called with the path of the file and a sample, it opens the
    file, runs it and returns arrays, numbers or texts, also in lists and dicts. Its process has no
    PyTorch."""
    command: Items[fields.Line] = ()
    """`["./infer", "{model}", "{sample}"]`: a program in place of `call`, started in the folder of
    the manifest. It prints its result as JSON, or writes an `.npz` to stdout. A sample that is no
    file is written as `.npy`."""
    reference: Annotated[fields.Line, FUNCTION]
    """`"predict.py:predict"`: the same with PyTorch; called with the model and a
    sample."""
    samples: Annotated[fields.Line, FUNCTION]
    """`"data/*.png"`: the paths of at least two files; or `"data.py:list_samples"`, a function that
    returns the samples."""
    atol: fields.Amount | None = None
    """The allowed difference of a float; by default 1e-4 of the largest magnitude of the
    result."""
    rtol: fields.Amount | None = None
    """The allowed difference relative to the value; by default 1e-3."""

    @property
    def name(self) -> str:
        """The caller in messages: its function, or its command."""
        return self.call or " ".join(self.command)

    @model_validator(mode="after")
    def _check_program(self) -> Caller:
        if bool(self.call) == bool(self.command):
            raise ValueError("needs one of `call` and `command`")
        if self.command and "{model}" not in " ".join(self.command):
            raise ValueError("`command` needs {model}, the path of the file")
        return self

    def implies(self, old: Caller) -> bool:
        """Return whether it allows no larger difference than another one."""
        bounds = [(each.atol, each.rtol) for each in (old, self)]
        is_as_tight = all(
            first == second or (first is not None and second is not None and second <= first)
            for first, second in zip(*bounds, strict=True)
        )
        same = self.model_copy(update={"atol": old.atol, "rtol": old.rtol}) == old
        return is_as_tight and same


def _has_callers(old: tuple[Caller, ...], new: tuple[Caller, ...]) -> bool:
    return all(any(each.implies(caller) for each in new) for caller in old)


def _has_items(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return old.items() <= new.items()


DECODER: Final = "decoder"
ENCODER: Final = "encoder"
VISION: Final = "vision"
EMBEDDING: Final = "embedding"
COMPLETE: Final = "whole"
#: The input of a decoder that gets the vectors of tokens and pictures.
VECTORS: Final = "inputs_embeds"
#: The tokens of a decoder, as inputs of a whole whose encoder has `input_ids`.
DECODER_TOKENS: Final = "decoder_input_ids"
#: The inputs of a decoder with an encoder, by their names in the whole.
NAMES_OF_DECODER: Mapping[str, str] = {
    DECODER_TOKENS: "input_ids",
    "attention_mask": "encoder_attention_mask",
}
#: Each part of a model that generates: the table of its interface.
Part = Literal["decoder", "encoder", "vision", "embedding", "whole"]
PARTS: Final = (DECODER, ENCODER, VISION, EMBEDDING, COMPLETE)


class Search(Table):
    """The settings of the model's own `generate` that the proved loop has, too."""

    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The divisor of the logits of tokens in the text so far, the factor of negative ones."""
    no_repeat_ngram_size: Annotated[int, Field(ge=0)] = 0
    """The length of the sequences of tokens that no text has twice; 0 for none."""
    suppress_tokens: Items[Annotated[int, Field(ge=0)]] = ()
    """The tokens that are never selected."""
    begin_suppress_tokens: Items[Annotated[int, Field(ge=0)]] = ()
    """The tokens that are not selected first."""


class Generate(Table):
    """A decoder of transformers with a cache, proved by the tokens of `generate`."""

    part: Part = DECODER
    """`"encoder"`: the file that gives a decoder the keys and values of its encoder. Of a model
    with pictures, `"vision"` encodes them, and `"embedding"` places their features among the
    tokens. `"whole"` is the `chain` of these parts and the decoder."""
    steps: Annotated[int, Field(ge=2, le=1000)] = 32
    """The number of tokens after each prompt, such as two rows of different lengths, one token,
    three rows, and more tokens than a sliding window. Only a model with states has no padding."""
    begin: int = 0
    """The token that begins a text of a published folder: that of `generate`."""
    end: Items[int] = ()
    """The tokens that end a text: those of `generate`, and further ones. The proof ignores them, so
    that it has all steps."""
    padding: int = 0
    """The token of padding: that of `generate`, if it has one."""
    search: Search = Search()
    """`{ repetition_penalty = 1.2 }`: settings that change the tokens, those of `generate`. One
    that is left out is not proved, and a note has its name."""


class Rollout(Table):
    """A loop of a recurrent model, in PyTorch and with the file."""

    steps: Annotated[int, Field(ge=2, le=1000)]
    """The number of runs; the first one has the declared inputs, and those of `constants`."""
    feeds: Annotated[dict[fields.Line, fields.Line], Field(min_length=1)]
    """`{ "present.{layer}" = "past.{layer}" }`: the input of the next step for an output. An
    integer input gets the positions of a float output's largest values, such as the next token.
    Others keep their values; along a growing axis, the last are repeated."""
    constants: Annotated[dict[fields.Line, fields.StepValues], FUNCTION] = Field(
        default_factory=dict
    )
    """`{ timestep = "schedule.py:values", reset = [true, false, false] }`: for an input that no
    output feeds, its value in each step, such as a schedule, a guidance scale or a reset. A
    function returns an array `[steps, ...]` or a list; it may take the number of steps. A number is
    the value of all elements."""
    loop: Annotated[fields.Line | None, FUNCTION] = None
    """`"sample.py:sample"`: PyTorch's own loop, which the steps have to repeat. It is called with
    the model and the tensors of the first step by the names of the inputs. It returns the outputs
    of the last step, or a list with those of each step: a tuple, a dict by names, or a tensor."""

    def implies(self, old: Rollout) -> bool:
        same = {"steps": old.steps} | ({} if old.loop else {"loop": None})
        return self.steps >= old.steps and self.model_copy(update=same) == old


class Keys(Table):
    """The keys of an entry whose form in a manifest is their value."""

    description: Annotated[fields.Line, DESCRIPTION] = Field(default="")
    """One line for reports and for the card of a published file."""
    owner: Annotated[fields.Line, DESCRIPTION] = Field(default="")
    """The person or team to contact if the model breaks."""
    license: Annotated[fields.Line, DESCRIPTION] = Field(default="")
    """The license of a published file: its SPDX identifier, such as `"Apache-2.0"`."""
    version: Annotated[fields.ModelVersion, DESCRIPTION] = Field(default="")
    """The version of a published file: `"3"`, or `"1.2.0"` for semantic versions."""
    tags: Annotated[Items[fields.Line], DESCRIPTION] = ()
    """Labels for `--tag`."""
    metadata: Annotated[dict[fields.Line, fields.Line], Key(is_as_strict=_has_items)] = Field(
        default_factory=dict
    )
    """`{ sample_rate = "16000" }`: texts for the programs that load the file. They are written to
    its `metadata_props`, and a file without one of them is red, also if a pass removes it."""
    source: Annotated[fields.Line, DEFINITION] = Field(default="")
    """`"file.py:attribute"` or `"package.module:attribute"`: a class, a function that returns a
    module, or a module, also a compiled one or an `ExportedProgram`. Or a file: `"net.pt2"`
    (`torch.export.save`) for dynamo, `"net.pt"` or `"net.jit"` (`torch.jit.save`) for TorchScript.
    `"net.onnx"` is the reference of the file `artifact`, or of the result of `passes`."""
    init: Annotated[dict[str, fields.PlainField], DEFINITION] = Field(default_factory=dict)
    """Keyword arguments for the call of the source."""
    artifact: Annotated[fields.Line, DEFINITION] = Field(default="")
    """`"files/net-{opset}.onnx"`: a file from a hub, another converter or another branch that is
    checked in place of an export; one opset needs no `{opset}`. `source` computes PyTorch's
    outputs, or is an ONNX file with the right ones. Keys of the export do not apply."""
    weights_sha256: Annotated[
        fields.Sha256, Key(gate="definition", is_as_strict=lambda old, _: not old)
    ] = Field(default="")
    """The required hash of the file `weights`, or of `source` if it is a saved model (`.pt2`,
    `.pt`, `.jit`, `.onnx`). If the file has another hash, the model fails before any of its code
    runs."""
    seed: Annotated[int, Field(ge=0, lt=2**63), DEFINITION] = 0
    """The seed of torch, Python and numpy, set before the model is built and inputs are drawn."""
    mode: Mode = "eval"
    """`eval` and `train` switch the model; `keep` does not change it."""
    precision: Precision | None = None
    """Casts the floating weights of the model. It is also the dtype of every input and output
    without a dtype, so a variant in half precision needs only `extends` and this line. Without it,
    nothing is cast."""
    export_device: Annotated[fields.ExportDevice, DEFINITION] = "cpu"
    """The device on which PyTorch runs and exports the model, and computes its own outputs.
    `devices` sets the devices that check the file. If a machine lacks it, the cells are
    `unavailable`."""
    exporter: Annotated[
        Literal["auto", "dynamo", "torchscript", "transformers"], Key(gate="nothing")
    ] = "auto"
    """`auto` is dynamo from opset 18 and TorchScript below; the record has the reason. `dynamo`
    below 18 converts the file down from 18, if that is possible. `transformers` is the exporter of
    that package, for `generate`."""
    capture: Annotated[CaptureName | None, Key(gate="nothing")] = None
    """`export`, `strict` or `draft` for dynamo, `trace` or `script` for TorchScript; no other is
    tried. `draft` assumes the conditions of the example and notes each. Without it: `export`, and
    `strict` if that fails; `trace` for TorchScript."""
    opsets: Annotated[fields.Opsets, Key(affects="nothing", gate="cell", shown=format_opsets)] = (
        Field(default_factory=tuple)
    )
    """`17`, `"9..21"`, `[13, "17..20"]`: one file for each opset, with exactly that opset."""
    metric: Annotated[Metric | None, Key(is_as_strict=is_implied, needs_model=True)] = None
    """`{ call = "eval.py:top1", least = 0.80, drop = 0.005 }`: a figure that is computed for
    PyTorch and for the file. The cell is red if the file breaks one of the promises."""
    callers: Annotated[Items[Caller], Key(is_as_strict=_has_callers, needs_model=True)] = ()
    """`[[models.ID.callers]]`: programs that run the file, each compared with PyTorch on the same
    samples. See `recipes.md`."""
    generate: Annotated[Generate | None, Key(gate="definition")] = None
    """With `exporter = "transformers"`: `{ steps = 32 }`. The entry is the model's decoder, one
    file with a cache that may be empty. `NAME.interface.toml` has its inputs, outputs and axes, and
    `exporter add` writes it; see `recipes.md`."""
    rollout: Annotated[Rollout | None, Key(is_as_strict=is_implied, needs_model=True)] = None
    """`{ steps = 32, feeds = { "present.{layer}" = "past.{layer}", logits = "input_ids" } }`: run
    PyTorch and the file in a loop, and compare the outputs and the greedy tokens of each step."""
    tokens: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        Key(
            affects="check",
            is_as_strict=lambda old, new: new is None or (old and new >= old),
        ),
    ] = None
    """`0.95`, for a float16 or quantized file: the least share of the loop's tokens that are
    PyTorch's. Each step gets PyTorch's token and the file's own states, which are not compared.
    Without it, every step is compared."""
    ir_version: Annotated[Annotated[int, Field(ge=3, le=99)] | None, LIMIT] = None
    """The highest IR version of the file, for older runtimes: ONNX Runtime before 1.18 rejects IR
    version 10 at every opset, and `ir_version = 8` suits 1.9 and later. A file that uses a newer
    feature is red."""
    consumers: Annotated[
        Items[Annotated[fields.Line, AfterValidator(check_consumer)]],
        Key(affects="check", gate="cell", is_as_strict=is_at_most),
    ] = ()
    """`["onnxruntime>=1.17"]`: the file loads in this release of ONNX Runtime and in later ones, or
    is red with the setting that keeps the promise. If an environment pins the release
    (`onnxruntime==1.17.3`), its devices run the file, too."""
    depends: Annotated[Items[fields.Line], DEFINITION] = ()
    """Globs of files that no tracing can see, such as those that a server reads: `["data/**",
    "../config/*.json"]`. If a matching file changes, appears or is removed, the cells are stale."""
    custom_ops: Annotated[Items[CustomOp], Key(gate="definition", needs_model=True)] = ()
    """Operators that the exporter does not support, and the kernels that run them."""
    thorough: Annotated[bool, Key(affects="nothing", is_as_strict=lambda _, new: new)] = False
    """Probe more sizes and values, at several times the cost: see `checks.md`."""
    measure: Annotated[
        Items[Measure],
        Key(affects="check", is_as_strict=lambda old, new: {*old} <= {*new}, needs_model=True),
    ] = ()
    """Figures of files that pass: `"latency"` (a run in turns with PyTorch, one thread each; with
    `generate` a loop, as tokens per second), `"load"` (time until a session exists), `"memory"` (of
    session and first run). The gate compares ratios only: see `gate.md`."""
    timeout: Annotated[fields.Timeout, DESCRIPTION] = 600.0
    """The limit of the job's CPU time, with child processes: `"10m"`, `"90s"`, `"1h"`, or seconds.
    The load of the machine does not matter. A job without CPU time and progress for as long ends,
    too."""
    memory: Annotated[fields.Memory | None, DESCRIPTION] = None
    """The limit of the job's address space in addition to PyTorch itself: `"8GiB"`, `"500MB"`;
    cells that need more are `killed`. Without it there is no limit. Linux only, and not if
    `export_device` is a GPU, whose driver reserves too much."""


Proof = Literal["short", "full"]
#: How reports show a status: a symbol or a word.
Style = Literal["emoji", "text"]
#: The engine of worker processes of this machine.
LOCAL = "local"
#: The restriction of workers.
Sandbox = Literal["none", "landlock"]
#: The value of `store` that switches the store off.
NO_STORE = "off"
#: Bytes: 10 GiB.
DEFAULT_STORE_SIZE = 10 << 30
#: Seconds: 90 days.
STORE_AGE = 90 * 24 * 3600.0
#: The scheme of a URL -> the modules that read it. Python can read `file` and `http` itself.
REMOTE_SCHEMES = {
    "s3": ("fsspec", "s3fs"),
    "gs": ("fsspec", "gcsfs"),
    "az": ("fsspec", "adlfs"),
    "file": (),
    "https": (),
    "http": (),
}
_SEPARATOR = "://"


def is_remote(store: str) -> bool:
    """Return True if the value of `store` is a URL."""
    return _SEPARATOR in store


def split_url(store: str) -> tuple[str, str]:
    scheme, _, rest = store.partition(_SEPARATOR)
    return scheme, rest


_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}
#: A hundred years, the upper limit of an age.
_MAX_DAYS = 36_500


def _parse_age(value: object) -> float:
    """Return seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,6}) ?([hdw])", value, re.ASCII)
        if match and 0 < (days := int(match[1]) * _DAYS[match[2]]) <= _MAX_DAYS:
            return days * 24 * 3600
    raise unexpected_value('an age such as "12h", "30d" or "8w"', value)


def check_store(value: str) -> str:
    """Return the value of `store` if it is a folder or a URL.

    Raises:
        ValueError: if it is neither.
    """
    return _check_url(value) if is_remote(value) else _check_store_folder(value)


def _check_url(value: str) -> str:
    scheme, rest = split_url(value)
    if scheme not in REMOTE_SCHEMES:
        schemes = ", ".join(f"{each}://" for each in REMOTE_SCHEMES)
        nearest = suggest_nearest(scheme, REMOTE_SCHEMES)
        message = f"{quote(value)} has the unknown scheme {quote(scheme)}; possible are {schemes}"
        raise ValueError(f"{message}{nearest}")
    host, *parts = rest.rstrip("/").split("/")
    if "@" in host:
        message = "the URL contains a user or a password; use the settings of the package"
        raise ValueError(f"{message}, such as environment variables")
    is_local = scheme == "file"
    if bool(host) == is_local or not all(parts) or ".." in parts or re.search(r"[?#\\]", rest):
        form = "file:///srv/store" if is_local else f"{scheme}://bucket/prefix"
        raise unexpected_value(f'a URL such as "{form}"', value)
    return value.rstrip("/")


def _check_store_folder(value: str) -> str:
    parts = value.removeprefix("/").removeprefix("~/").split("/")
    if not all(parts) or "." in parts or parts[0].startswith("~") or re.search(r"[\\:]", value):
        raise unexpected_value(
            'a folder such as "~/.cache/exporter" or "../store", a URL such as '
            '"s3://bucket/prefix", or "off"',
            value,
        )
    return value


Age = Annotated[
    float,
    PlainValidator(_parse_age),
    WithJsonSchema({"type": "string", "examples": ["12h", "30d", "8w"]}),
]
StorePlace = Annotated[fields.Line, AfterValidator(check_store)]


def _check_command(value: str) -> str:
    if value.count(NAME_PLACEHOLDER) != 1 or "`" in value:
        raise unexpected_value("one '{}' for the name of the command, and no backtick", value)
    return value


def _check_package_file(value: str) -> str:
    package, _, file = value.partition(":")
    if value and not (package.isidentifier() and re.fullmatch(r"[\w.-]+\.toml", file, re.ASCII)):
        raise unexpected_value('a file of a package such as "acme_models:defaults.toml"', value)
    return value


def _check_folder(value: str) -> str:
    parts = value.split("/")
    is_outside = not all(parts) or ".." in parts or "." in parts or re.search(r"[\\:]", value)
    if is_outside or ".git" in map(str.lower, parts):
        raise unexpected_value('a folder inside the project, such as "out/build"', value)
    return value


_SCHEDULER = re.compile(r"(tcp|tls|ws|wss)://[^\s/@]+:\d{1,5}", re.ASCII)


def is_scheduler(engine: str) -> bool:
    """Return whether an engine is the address of a Dask scheduler."""
    return bool(_SCHEDULER.fullmatch(engine))


def check_engine(value: str) -> str:
    """Return the value of `engine` if it is one.

    Raises:
        ValueError: if it is none.
    """
    file, _, name = value.rpartition(":")
    parts = file.split("/")
    is_function = file.endswith(".py") and all(parts) and ".." not in parts and name.isidentifier()
    if not (value in (LOCAL, "dask") or is_scheduler(value) or is_function):
        raise unexpected_value(
            '"local", "dask", the address of a scheduler such as "tcp://10.0.0.1:8786", or a '
            'function such as "cluster.py:make"',
            value,
        )
    return value


Command = Annotated[fields.Line, AfterValidator(_check_command)]
Engine = Annotated[fields.Line, AfterValidator(check_engine)]
Folder = Annotated[fields.Line, AfterValidator(_check_folder)]


def _check_folders(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders, if there is one and none is read twice.

    Raises:
        ValueError: with the folder to remove.
    """
    if not folders:
        raise ValueError("expected a folder or a list of folders, got an empty list")
    for index, folder in enumerate(folders):
        for other in folders[:index]:
            inner, outer = sorted((folder, other), key=len, reverse=True)
            if f"{inner}/".startswith(f"{outer}/"):
                problem = "is listed twice" if inner == outer else f"is inside {quote(outer)}"
                raise ValueError(f"{quote(inner)} {problem}, whose files are read; remove it")
    return folders


Folders = Annotated[
    Items[Folder],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    AfterValidator(_check_folders),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]

OptionValue = bool | int | float | fields.Line


class DeviceKeys(Table):
    """The keys of a device whose form is their value."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "optimization": 'use `session_options = { graph_optimization_level = "ORT_DISABLE_ALL" }`'
    }

    runtime: fields.RuntimeName
    """`"onnxruntime"`, `"openvino"`, `"reference"` (onnx.reference), `"tract"`, `"web"` (ONNX
    Runtime Web in Node), `"backend"` (any
    module that implements the ONNX backend API), or the name of an installed plugin. A plugin is an
    entry point of the group `exporter.runtimes`."""
    providers: Items[fields.Line] = ()
    """Execution providers of ONNX Runtime, first choice first."""
    strict: bool = False
    """Every node has to run on the first provider, except those that compute shapes without a copy.
    Without it some may run on other providers: the report counts and lists them."""
    module: fields.Line = Field(default="")
    """The ONNX backend, such as `"onnxruntime.backend"`: a module with `prepare`, or
    `"package.module:Class"`."""
    device: fields.Line = Field(default="")
    """The device of the ONNX backend (`"CUDA:0"`) or OpenVINO (`"GPU"`); without it `"CPU"`."""
    session_options: dict[fields.Line, OptionValue] = Field(default_factory=dict)
    """Options of ONNX Runtime's session: attributes of `SessionOptions` such as
    `graph_optimization_level = "ORT_DISABLE_ALL"`, and config entries, which contain a dot:
    `"session.set_denormal_as_zero" = true`. With OpenVINO, properties of the compiled model.
    `"default"` leaves a setting of every proof to the runtime."""
    provider_library: fields.Line = Field(default="")
    """The shared library of the first provider, if it is a plugin (ONNX Runtime 1.23 or later): a
    path from the project's folder, or a function of a package in the environment that returns it:
    `"onnxruntime_ep_openvino:get_library_path"`."""
    variables: dict[fields.Variable, fields.Line] = Field(default_factory=dict)
    """Environment variables of the device's process, which needs `environment`, such as
    `VK_ICD_FILENAMES = "/usr/lib/chromium/vk_swiftshader_icd.json"`. Absolute paths must exist,
    otherwise the cells are `unavailable`."""
    proof: Proof = "short"
    """The proof after an earlier device proved the promises of the file. `"full"` runs all checks
    again. `"short"` compares the declared inputs, the cases, another size of each axis and special
    values, and runs all checks if one differs."""


class ProjectKeys(Table):
    """The keys of `[tool.exporter]` whose form is their value."""

    #: The folder of templates that replace the packaged ones.
    templates: ClassVar[str] = "templates"
    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "timings": "use `exporter export --timings`",
        "store_age": "remove it, or use `exporter gc --store-age`; entries are kept for 90 days",
        "store_timeout": "remove it; a run waits at most 120 s for a remote store",
        "store_key": "remove it, and set the variable EXPORTER_STORE_KEY to the key itself",
        "templates": "remove it, and move its files to the folder `templates`",
        "jobs": "remove it, or use `exporter export --jobs`",
        "default_devices": "write `devices` into [tool.exporter.defaults]",
        **dict.fromkeys(
            ("opsets", "tolerance", "timeout", "thorough", "memory"),
            "write it into [tool.exporter.defaults]",
        ),
    }

    requires: fields.VersionRange = Field(default="")
    """The versions of this program: `"==1.1.0"`, or a range such as `">=1.1, <1.3"`. With another
    one, each command that reads the project ends with the command that installs the right one."""
    extends: Annotated[fields.Line, AfterValidator(_check_package_file)] = ""
    """`"PACKAGE:defaults.toml"`: a file of an installed package with `format = 1` and `[defaults]`,
    below `[tool.exporter.defaults]`, for the same settings in several repositories. Its paths are
    relative to the project."""
    manifests: Folders = Field(default="manifests", validate_default=True)
    """The folder of the manifests; every `*.toml` in it and in its subfolders is read. Several are
    a list, `["manifests", "team_b/manifests"]`; `record`, `add` and `init` write into the first."""
    build: Folder = "build"
    """The build folder; keep it out of git."""
    reports: Folder = "reports"
    """The folder of the tables and the baseline; commit it."""
    store: StorePlace = ""
    """The folder of finished cells, such as `"~/.cache/exporter"`, a URL such as
    `"s3://bucket/prefix"` for several machines, or `"off"`. Without it: the folder of git, or
    `build/.store`. The variable `EXPORTER_STORE` takes precedence. See `store.md`."""
    store_size: fields.Memory | None = None
    """The limit of the store's disk space; the least recently used entries are evicted first.
    Without it: 10 GiB."""
    engine: Engine = LOCAL
    """The machines that run the jobs: `"local"`, or a cluster of Dask: the address of its scheduler
    (`"tcp://10.0.0.1:8786"`), a function that returns it (`"cluster.py:make"`), or `"dask"` for one
    on this machine. See `clusters.md`."""
    style: Style = "emoji"
    """The form of a status: `"emoji"` uses a symbol. `"text"` uses its word, or a letter in narrow
    columns, for readers and programs without symbols."""
    command: Command = DEFAULT_COMMAND
    """The form of commands in messages and pages, with `{}` for the name: `"uv run exporter {}"`,
    or `"nox -s {} --"` if sessions of nox have the names of the commands."""
    environment: Items[fields.Variable] = ()
    """Variables that workers receive beside `PATH`, `HOME` and those that drivers and PyTorch read:
    `["HF_ENDPOINT", "MY_*"]`. If a value changes, all cells are stale. Unless listed, locale and
    time zone are UTF-8 and UTC, and secrets are absent: see SECURITY.md."""
    sandbox: Sandbox = "none"
    """`"landlock"` restricts workers (Linux 6.12 or later, without privileges): a model writes only
    to the folder of its job, has no TCP, and cannot signal or open other processes. It can read all
    files. SECURITY.md has a stricter command."""
