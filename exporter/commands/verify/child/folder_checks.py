"""The child process of `verify`: the hashes of a folder, the checks of its file, its tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from exporter.checks.comparison.compare_samples import apply_sample_noise
from exporter.checks.comparison.tolerance import ComparedOutput
from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.next_token import apply_search
from exporter.checks.protocol import CheckedFile, DamagedSample
from exporter.checks.rollout import find_tie_margin, list_loops
from exporter.commands.publish.child.proof import DamagedFolder, open_samples, prove_folder
from exporter.commands.publish.published_folder import (
    CONTRACT,
    GENAI_CONFIG,
    MARKER,
    SUMS,
    Publication,
    describe_use,
    find_hash_problems,
    list_missing_in_genai,
    list_special_files,
    list_unlisted_files,
)
from exporter.commands.verify.client import (
    FILES_CHECK,
    GENAI_CHECK,
    PublishedFile,
    list_check_functions,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT, read_regular_file
from exporter.core.text import join_lines, join_names, pluralize
from exporter.gate.verify_report import DeviceVerdict, hash_settings
from exporter.jobs import Sample
from exporter.manifest import Device, ModelSpec
from exporter.manifest.resolved.keys import Generate
from exporter.manifest.syntax.fields import FLOATS
from exporter.records.record import CellId, CheckResult, Record, Status
from exporter.runtimes import NO_KERNELS, Kernels, RuntimeUnavailable
from exporter.runtimes.graph_walk import normalize_domain
from exporter.worker.model.kernels import load_kernels

_GENAI = "onnxruntime_genai"
_NO_GENAI = "not installed; install 'onnx-exporter-matrix[genai]' to compare its tokens"
_GREEDY = {"do_sample": False, "num_beams": 1, "min_length": 0}
#: The settings of `generate` that both have; the option is that of the entry.
_SETTINGS = ("repetition_penalty", "no_repeat_ngram_size")
#: Other settings of a session may load code, write a file or select a device.
_SESSION_KEYS = frozenset({"log_id", "intra_op_num_threads", "graph_optimization_level"})
#: Problems in a message.
_SHOWN_PROBLEMS = 3
_NO_FUNCTIONS = (
    "it is compared by {}; run the command in the project of the entry with this `compare`, or "
    "pass the project's folder as --root"
)
_NO_KERNELS = (
    "it needs kernels of custom operators; run the command in the project of the entry, or pass "
    "the project's folder as --root"
)


def read_opset(path: Path) -> int:
    """Return the opset of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if it is not an ONNX file.
    """
    try:
        proto = read_model(path)
    except UnreadableModel as error:
        raise ExporterError(ExitCode.UNREADABLE, str(error)) from error
    for each in proto.opset_import:
        if not normalize_domain(each.domain) and each.version:
            return int(each.version)
    raise ExporterError(ExitCode.UNREADABLE, "imports no opset of ONNX")


def check_folder(
    item: PublishedFile,
    publication: Publication,
    spec: ModelSpec,
    devices: tuple[Device, ...],
    root: Path,
    kernels: ModelSpec | None,
) -> tuple[DeviceVerdict, ...]:
    """Prove one published folder on every device.

    `item`: The published folder, and the file that is proved in place of the published one.
    `kernels`: The entry with the kernels. The paths in a published contract are not trusted.
    """
    special = list_special_files(item.folder)
    problems = [] if special else list(_find_file_problems(item, publication, spec))
    cells = [CellId(model=spec.id, opset=publication.opset, device=d.name) for d in devices]
    tokens: tuple[CheckResult, ...] = ()
    try:
        if special:
            raise DamagedFolder(
                f"expected regular files, which can be copied: {join_names(special)}"
            )
        # Not the functions that the folder names.
        calls, known = list_check_functions(spec), list_check_functions(kernels) if kernels else []
        if not set(calls) <= set(known):
            raise RuntimeUnavailable(_NO_FUNCTIONS.format(join_names(calls)))
        spec = spec.model_copy(update={"manifest": kernels.manifest}) if kernels else spec
        loaded = _load_kernels(spec, root, kernels)
        if (item.path / GENAI_CONFIG).exists():
            tokens = (check_tokens(item, publication, spec),)
        if tokens and item.file:
            fields = tokens[0].model_dump(include={"status", "check", "message"})
            records = tuple(Record(cell=cell, **fields) for cell in cells)
        else:
            records = tuple(
                prove_folder(item.folder, item.file, publication, spec, devices, loaded, root)
            )
    except (RuntimeUnavailable, DamagedFolder) as error:
        if isinstance(error, DamagedFolder):
            problems.append(str(error))
        records = tuple(
            Record(cell=cell, status=Status.UNAVAILABLE, check="load", message=str(error))
            for cell in cells
        )
    files = _check_files(item, problems)
    return tuple(
        _make_verdict(device, (files, *(tokens if device.name == "cpu" else ())), record)
        for device, record in zip(devices, records, strict=True)
    )


def _make_verdict(device: Device, checks: tuple[CheckResult, ...], record: Record) -> DeviceVerdict:
    red = next((each for each in checks if each.status.is_red), None)
    return DeviceVerdict(
        device=device.name,
        status=red.status if red else record.status,
        check=red.check if red else record.check or record.stage or "",
        message=red.message if red else record.message,
        checks=(checks[0], *record.checks, *checks[1:]),
        runtime=record.runtime or _describe_runtime(device),
        session=device.settings,
        settings=hash_settings(device),
    )


def _describe_runtime(device: Device) -> str:
    """Return the packages of the runtime in this process: `onnxruntime-gpu 1.31.1`."""
    modules = [device.row.package or device.module.partition(".")[0] or device.runtime]
    modules += [device.provider_library.partition(":")[0].partition(".")[0]]
    packages = packages_distributions()
    names = dict.fromkeys(name for module in modules for name in packages.get(module, ()))
    return ", ".join(f"{name} {version(name)}" for name in names) or modules[0]


def _find_file_problems(
    item: PublishedFile, publication: Publication, spec: ModelSpec
) -> Iterator[str]:
    """Compare the files with the hashes, both documents with each other, and read the old verdict.

    Programs take the labels from `exporter.json`, and the proof is about the contract.
    """
    try:
        yield from find_hash_problems(item.folder, is_strict=item.is_strict)
    except (OSError, ValueError) as error:
        yield f"{SUMS} cannot be read: {error}"
    expected = {each.folder for each in publication.data_sets}
    actual = {path.name for path in item.folder.glob("test_data_set_*")}
    if expected != actual:
        names = join_names(sorted(expected ^ actual))
        yield f"the data sets differ from those in exporter.json: {names}"
    for key, value in describe_use(spec).items():
        if getattr(publication, key) != value:
            yield f"the {key} of {MARKER} are not those of {CONTRACT}"
    for output in spec.outputs:
        size = output.shape[-1] if output.shape and output.dtype in FLOATS else None
        if output.labels and isinstance(size, int) and size != len(output.labels):
            count = pluralize(len(output.labels), "label")
            yield f"output '{output.name}' has {count}, its last axis is {size} long"
    if not publication.is_green and item.file is None:
        yield f"it was published although it is red: {publication.warning}"


def _check_files(item: PublishedFile, problems: list[str]) -> CheckResult:
    if not problems:
        others = list_unlisted_files(item.folder)
        note = f"not in {SUMS}, and nothing refers to it: {join_names(others)}" if others else ""
        return CheckResult(check=FILES_CHECK, status=Status.PASS, message=note)
    more = len(problems) - _SHOWN_PROBLEMS
    rest = [pluralize(more, "more problem")] if more > 0 else []
    text = "; ".join((*problems[:_SHOWN_PROBLEMS], *rest))
    return CheckResult(check=FILES_CHECK, status=Status.FAIL, message=text)


def _load_kernels(spec: ModelSpec, root: Path, contract: ModelSpec | None) -> Kernels:
    if not any(op.ort_library or op.reference for op in spec.custom_ops):
        return NO_KERNELS
    if contract is None:
        raise RuntimeUnavailable(_NO_KERNELS)
    try:
        return load_kernels(contract, root)
    except Exception as error:
        raise RuntimeUnavailable(f"the kernels cannot be loaded: {error}") from error


def check_tokens(item: PublishedFile, publication: Publication, spec: ModelSpec) -> CheckResult:
    """Compare the greedy tokens of a folder in ONNX Runtime GenAI with those of PyTorch."""
    if not find_spec(_GENAI):
        return CheckResult(check=GENAI_CHECK, status=Status.UNAVAILABLE, message=_NO_GENAI)
    status = Status.FAIL
    count = 0
    equal = 0
    with open_samples(item.folder, publication) as (job, reference):
        checked = CheckedFile(folder=job, opset=publication.opset, spec=spec, reference=reference)
        loops = list_loops(reference)
        # The last prompt is one row, longer than a sliding window if there is one.
        last = loops[-1][0].axes if loops else {}
        is_alone = last.get("batch") == 1 and last.get("length", 1) > 1
        try:
            if not loops:
                raise ValueError("the published folder has no prompts; publish the entry again")
            if missing := list_missing_in_genai(spec):
                raise ValueError(f"ONNX Runtime GenAI has no {join_names(missing)}")
            generate, unused = _open_package(item.path, spec, is_alone=is_alone)
            for steps in loops:
                compared = compare_tokens(steps, checked, generate)
                count, equal = count + compared[0], equal + compared[1]
            prompts, release = pluralize(len(loops), "prompt"), version("onnxruntime-genai")
            share = "the" if spec.tokens is None else f"{equal} of the"
            message = f"ONNX Runtime GenAI {release} selects {share} {count} tokens of {prompts}"
            if is_alone:
                message += "; rows of different lengths ran alone, because padding on the right "
                message += "is part of its sliding window"
            if unused:
                message += f"; not with the {join_names(unused)} of its `search`"
            if equal < (spec.tokens or 0) * count:
                raise ValueError(f"{message}; a share of {spec.tokens:g} is promised")
            status = Status.PASS
        except (DamagedSample, ImportError, OSError, ValueError, RuntimeError) as error:
            message = join_lines(str(error)).replace(f"{item.path}/", "")
    return CheckResult(check=GENAI_CHECK, status=status, message=message)


def _open_package(
    package: Path, spec: ModelSpec, *, is_alone: bool
) -> tuple[Callable[..., Iterator[Any]], list[str]]:
    """Return the function that generates, if the configuration is safe and fits the entry.

    The second value has the settings of its search that the entry does not have.

    `is_alone`: Whether rows of different lengths run one after the other, without padding.
    """

    def read_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for value in (
            each for key, each in pairs if key == "session_options"
        ):  # JSON may repeat a key
            if others := {name for name in value if value[name]} - _SESSION_KEYS:
                raise ValueError(f"{join_names(sorted(others))} may load code; remove it")
        return dict(pairs)

    caches = [item.shape for item in spec.inputs if item.name.endswith(".key")]
    if not spec.generate or not caches:
        raise ValueError("the entry is no decoder with `generate`, so it has no prompts")
    options = _GREEDY | {name: getattr(spec.generate.search, name) for name in _SETTINGS}
    expected = {"num_hidden_layers": len(caches), "eos_token_id": [*spec.generate.end]}
    expected |= zip(("num_key_value_heads", "head_size"), caches[0][1::2], strict=True)
    try:
        content = read_regular_file((package / GENAI_CONFIG).resolve(), CELL_LIMIT)
        config = json.loads(content, object_pairs_hook=read_table)
        model, search = config["model"], dict(config.get("search", {}))
        padding = int(model["pad_token_id"])
        if (
            padding not in spec.generate.end
        ):  # many folders pad with the end, because they have no other token
            expected["pad_token_id"] = spec.generate.padding
        model |= model["decoder"] | {"eos_token_id": np.ravel(model["eos_token_id"]).tolist()}
        pairs = [(key, model[key], value) for key, value in expected.items()]
    except (KeyError, TypeError, ValueError) as error:
        message = f"is no valid configuration of a decoder: {type(error).__name__}: {error}"
        raise ValueError(f"{GENAI_CONFIG}: {message}") from error
    problems = [
        f"{key} is {one}, the entry has {other}" for key, one, other in pairs if one != other
    ]
    if problems:
        raise ValueError(f"{GENAI_CONFIG}: {'; '.join(problems)}; correct one of them")
    unused = [
        f"{name} = {search[name]}"
        for name in options
        if search.get(name, options[name]) != options[name]
    ]
    genai = import_module(_GENAI)
    opened = genai.Model(genai.Config(str(package)))

    def generate(rows: Sequence[Sequence[int]], steps: int) -> Iterator[Any]:
        length = max(map(len, rows))
        if is_alone and length > min(map(len, rows)):
            columns = [[*generate([row], steps)] for row in rows]
            yield from map(np.concatenate, zip_longest(*columns, fillvalue=[padding]))
            return
        parameters = genai.GeneratorParams(opened)
        sizes = {"batch_size": len(rows), "max_length": length + steps}
        parameters.set_search_options(**sizes, **options)
        generator = genai.Generator(opened, parameters)
        padded = [[*row, *[padding] * (length - len(row))] for row in rows]
        generator.append_tokens(np.array(padded, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
            yield np.array(generator.get_next_tokens())

    return generate, unused


def compare_tokens(
    steps: Sequence[Sample], checked: CheckedFile, generate: Callable[..., Iterator[Any]]
) -> tuple[int, int]:
    """Return the number of tokens after a prompt up to each row's end, and of the equal ones.

    `generate`: Yields the tokens of all rows; after another one it continues with PyTorch's.

    Raises:
        DamagedSample, ValueError: If a step cannot be read, or at the first token that is neither
            PyTorch's nor a tie, unless the entry promises a share of the tokens.
    """
    position = [output.name for output in checked.spec.outputs].index("logits")
    folders = map(checked.folder.locate, steps)
    data = [checked.samples.read(folder, checked.spec) for folder in folders]
    prompt = data[0].inputs["input_ids"]
    mask = data[0].inputs.get("attention_mask", np.ones_like(prompt))
    generator = checked.spec.generate or Generate()
    search, end = generator.search, generator.end
    texts = [row[is_text].tolist() for row, is_text in zip(prompt, mask != 0, strict=True)]
    # `no_repeat_ngram_size` counts tokens of padding, too, which are at another place here.
    ended = (mask == 0).any(1) & (search.no_repeat_ngram_size > 0)
    count = 0
    equal = 0
    tokens = generate(texts, len(steps))
    for number, step in enumerate(steps):
        if ended.all():
            break
        logits = np.asarray(data[number].outputs[position])[:, -1]
        logits = apply_search(search, logits, [each.inputs for each in data[: number + 1]])
        right, chosen = logits.argmax(-1), next(tokens, None)
        if chosen is None:
            raise ValueError(f"{step.name}: the text ends before token {right[~ended][0]}")
        known = np.minimum(chosen, logits.shape[1] - 1)
        margins = logits.max(-1) - logits[np.arange(len(known)), known]
        checked_output = ComparedOutput(apply_sample_noise(step, checked), position, "cpu", False)
        wrong = (margins > find_tie_margin(logits, checked_output)) | (chosen != known)
        if checked.spec.tokens is None and (wrong & ~ended).any():
            row = int((wrong & ~ended).argmax())
            message = f"{step.name}, row {row + 1}: it selects token {chosen[row]} in place of "
            raise ValueError(f"{message}{right[row]}; PyTorch's margin is {margins[row]:.3g}")
        count, equal = count + int((~ended).sum()), equal + int((~ended & (chosen == right)).sum())
        texts = [[*row, int(token)] for row, token in zip(texts, right, strict=True)]
        if (~ended & (chosen != right)).any():
            tokens = generate(texts, len(steps) - number - 1)
        ended |= np.isin(right, end)
    return count, equal
