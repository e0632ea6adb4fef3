"""From the text of `source` to a model that is ready to run."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from exporter.cache.states import hash_source
from exporter.checks.validity_checks import BUILD_PREFIX
from exporter.core import import_plugin
from exporter.core.errors import suggest_nearest
from exporter.core.import_object import load_attribute, prepend_to_path
from exporter.core.system import IS_LINUX
from exporter.core.text import join_names
from exporter.manifest import ModelSpec, StateNames
from exporter.records.record import Stage, Status
from exporter.runtimes.session import Array
from exporter.worker.model.exported_program import convert_to_module
from exporter.worker.process.failure import Failure, format_message, wrap_errors
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.process.setup import seed_generators

map_weights = import_plugin("weights").map_weights  # the fork server loads it before it forks

#: torch's message for a pickle that calls another function than those for tensors.
_UNSAFE = re.compile(r"(?:Unsupported (?:global: GLOBAL|class)|GLOBAL) (\S+)")


def require_hash(spec: ModelSpec, folder: Path) -> None:
    """Compare the file with the hash in the manifest, before any code of the model runs."""
    if not spec.weights_sha256:
        return
    file = spec.weights or spec.source  # a saved model contains its weights
    actual = hash_source(folder / file)
    if actual != spec.weights_sha256:
        raise Failure(
            Stage.SOURCE,
            f"{file}: the sha256 is {actual or 'unknown (the file cannot be read)'}, "
            f"expected {spec.weights_sha256}; restore the file or correct `weights_sha256`",
        )


def load_weights(model: object, spec: ModelSpec, folder: Path) -> None:
    """Load the file of `spec.weights` into the model.

    A failure has the missing and unexpected names.
    """
    if not isinstance(model, torch.nn.Module):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(model).__name__}, which has no weights; remove `weights`",
        )
    state = _read_state(folder / spec.weights, spec.weights, spec.weights_names)
    with wrap_errors(Stage.SOURCE):
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            _, _, reasons = str(error).partition(":")
            text = f"{spec.weights} does not fit {spec.source}: {reasons.strip() or error}"
            key = spec.weights_names.key
            names = [*find_names(state, list(model.state_dict()), key)]
            if names and names[0] != StateNames(key=key):
                text = f"{spec.weights} has the names of the model with another prefix; "
                text += f"set `weights = {{ {names[0].format(spec.weights)} }}`"
            raise Failure(Stage.SOURCE, format_message(text)) from error


def find_names(
    names: Collection[str], expected: Collection[str], key: str = ""
) -> Iterator[StateNames]:
    """Yield the prefixes with which the table `key` of a file contains the names of a state."""
    parts = next(iter(expected), "").split(".")
    ends = [".".join(parts[index:]) for index in range(len(parts))]
    prefixes = {
        (name.removesuffix(end), ends[0].removesuffix(end))
        for end in ends
        for name in names
        if f".{name}".endswith(f".{end}")
    }
    for strip, prefix in sorted(prefixes):
        pairs = StateNames(key=key, strip=strip, prefix=prefix)
        if pairs.rename(dict.fromkeys(names)).keys() >= {*expected}:
            yield pairs


def _read_state(path: Path, name: str, names: StateNames) -> Mapping[str, Any]:
    """Return the tensors of a file by their names in the model."""
    try:
        content = read_weights(path)
    except Exception as error:
        raise Failure(Stage.SOURCE, f"{name} {_describe_error(error)}") from error
    if names.key:
        if not isinstance(content, Mapping) or names.key not in content:
            keys = [str(key) for key in content] if isinstance(content, Mapping) else []
            hint = suggest_nearest(names.key, keys) or f"; it has {join_names(keys)}"
            raise Failure(Stage.SOURCE, f"{name} has no key '{names.key}'{hint}")
        content, name = content[names.key], f"{name}: the table '{names.key}'"
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        # A module may return any value for the key `_extra_state`.
        others = [
            key
            for key, value in content.items()
            if not isinstance(value, torch.Tensor) and not key.endswith("_extra_state")
        ]
        if content and not others:
            if state := names.rename(content):
                return state
            message = f"{name} has no name that begins with '{names.strip}'; correct `strip`"
            raise Failure(Stage.SOURCE, message)
        nested = [key for key, value in content.items() if isinstance(value, Mapping)]
        hint = f"; set `weights = {{ {StateNames(key=nested[0]).format(name)} }}`" if nested else ""
        problem = f"more than tensors: {join_names(others)}{hint}" if others else "no tensors"
    else:
        problem = f"a {type(content).__name__}, expected tensors by name"
    raise Failure(Stage.SOURCE, format_message(f"{name} contains {problem}"))


def read_weights(path: Path) -> Any:
    """Return the content of a file of weights; only tensors and plain values are read."""
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        # The tensors are mapped, so the copy in the model is the only one in memory.
        with safe_open(path, framework="pt", device="cpu") as tensors:
            return {key: tensors.get_tensor(key) for key in list(tensors.keys())}
    with path.open("rb") as file:
        # Files of torch before 1.6 are no archives and cannot be mapped.
        is_archive = file.read(2) == b"PK"
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)


def _describe_error(error: Exception) -> str:
    text = str(error)
    if match := _UNSAFE.search(text):
        name = format_message(match[1].rstrip("."))
        return f"is refused: it would run {name} when it is read; save `model.state_dict()`"
    if "TorchScript archive" in text:
        return "is a TorchScript module, not a file of weights; name it in `source`"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"cannot be read: {format_message(first)}"


#: The models that the exporters accept.
Model: TypeAlias = "torch.nn.Module | torch.jit.ScriptFunction[Any, Any]"


def load_model(spec: ModelSpec, root: Path) -> Model:
    """Build the model under its seed and set its weights, precision, device and mode.

    Raises:
        Failure: Stage `source`, if the import or the construction fails, or if the result is no
            model. Status `unavailable`, if this machine lacks the export device.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE), map_weights() as store:
        require_hash(spec, folder)
        device = _resolve_device(spec)
        prepend_to_path(root)
        if spec.is_saved_program:
            model: Any = torch.export.load(folder / spec.source)
        elif spec.is_saved_script:
            load: Callable[..., Any] = torch.jit.load  # torch has no types for it
            model = load(str(folder / spec.source), map_location="cpu")
        else:
            model = _build_model(spec, folder)
        if isinstance(model, ExportedProgram):
            settings = {
                "weights": bool(spec.weights),
                "mode": spec.mode == "train",
                "precision": spec.precision is not None,
                "export_device": spec.export_device != "cpu",
            }
            for key in (key for key, is_set in settings.items() if is_set):
                message = f"{spec.source} is an ExportedProgram: its capture fixed the {key}; "
                raise Failure(Stage.SOURCE, f"{message}remove `{key}`")
            loaded: Model = convert_to_module(model)
            store(loaded)
            return loaded
        if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        if spec.weights:
            load_weights(model, spec, folder)
        loaded = (
            prepare_module(model, spec, device) if isinstance(model, torch.nn.Module) else model
        )
        store(loaded)
        return loaded


def import_source(spec: ModelSpec, root: Path) -> None:
    """Import the source of a model under its seed, without building the model."""
    with wrap_errors(Stage.SOURCE), map_weights():
        prepend_to_path(root)
        if spec.generate is not None:
            import_plugin("generate").require_package()  # its message has the fix
        seed_generators(spec.seed)  # the import builds a model that is an object of the module
        load_attribute(spec.source, (root / spec.manifest).parent)


def _resolve_device(spec: ModelSpec) -> torch.device:
    device = torch.device(spec.export_device)
    if device.type == "cpu":
        return device
    module = getattr(torch, device.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (device.index or 0) >= count:
        raise Failure(
            Stage.SOURCE,
            f"export_device = '{spec.export_device}': PyTorch finds {count or 'no'} {device.type} "
            "device(s) on this machine",
            status=Status.UNAVAILABLE,
        )
    return device


def _build_model(spec: ModelSpec, folder: Path) -> Any:
    seed_generators(spec.seed)  # the import builds a model that is an object of the module
    source = load_attribute(spec.source, folder)
    seed_generators(spec.seed)
    if isinstance(source, torch.nn.Module | torch.jit.ScriptFunction | ExportedProgram):
        if spec.init:
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} is a model, which accepts no init arguments; remove `init`",
            )
        return source
    if not callable(source):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(source).__name__}, expected a class, a function or a module",
        )
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):
        signature = None  # the call reports the problem
    try:
        if signature is not None:
            signature.bind(**spec.init)
    except TypeError as error:
        parameters = f"{spec.source.rpartition(':')[2]}{signature}"
        message = f"`init` does not fit {parameters}: {error}; change `init` or the parameters"
        raise Failure(Stage.SOURCE, message) from error
    return source(**spec.init)


def prepare_module(model: torch.nn.Module, spec: ModelSpec, device: torch.device) -> Model:
    """Set the precision, the device and the mode; compile it if `capture` is `script`."""
    weights = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, weight in weights if is_lazy(weight)]:
        # The first call of the model defines these sizes.
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} has lazy weights, which have no sizes yet ({', '.join(lazy)}); "
            "set `source` to a function that builds the model, calls it once and returns it",
        )
    # `Module.to` would discard the imaginary part of complex weights.
    casts = {
        "float32": model.float,
        "float16": model.half,
        "bfloat16": model.bfloat16,
        "float64": model.double,
    }
    if spec.precision:
        casts[spec.precision]()
    if device.type != "cpu":
        model.to(device)
    if spec.mode == "eval":
        model.eval()
    elif spec.mode == "train":
        model.train()
    if spec.capture == "script" and not isinstance(model, torch.jit.ScriptModule):
        compiled: torch.nn.Module = torch.jit.script(model)
        return compiled
    return model


#: Names in one message.
_MAX_NAMES = 3


# A model that is built from the time, from unseeded generators or from memory that nobody set has
# other weights in each export, so no record describes the next file.
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, with the facts of its builds."""

    model: Model
    change: str = ""
    """The difference of another build from it; empty if there is none."""
    unproved: tuple[str, ...] = ()
    """The promise that another build would prove, if there is none."""
    has_initial_weights: bool = False
    """Whether its weights were drawn from the seed, and none were loaded."""


def load_model_twice(spec: ModelSpec, root: Path) -> LoadedModel:
    """Return the model, compared with another build in a fork."""
    if spec.is_saved_program or spec.is_saved_script:
        return LoadedModel(model=load_model(spec, root))
    other = None
    with _count_loads() as loads:
        import_source(spec, root)  # once for both builds
        is_drawn = _has_drawn(spec.seed)
        if can_fork():
            other = compute_in_fork(lambda: digest_weights(load_model(spec, root)))
        model = load_model(spec, root)
        if not IS_LINUX:
            other = compute_in_fork(lambda: digest_weights(load_model(spec, root)))
        is_drawn = is_drawn or _has_drawn(spec.seed)
    first = digest_weights(model) if other is not None else {}
    names = dict.fromkeys((*first, *(other or ())))
    changed = [name for name in names if first.get(name) != (other or {}).get(name)]
    has_weights = isinstance(model, torch.nn.Module) and any(True for _ in model.parameters())
    reason = "the process of the second build ended early, or has threads or uses a GPU"
    return LoadedModel(
        model=model,
        change=f"{BUILD_PREFIX} {join_names(changed, _MAX_NAMES)}" if changed else "",
        unproved=(f"the same weights in each build: {reason}",) if other is None else (),
        has_initial_weights=is_drawn and not loads and has_weights,
    )


def _has_drawn(seed: int) -> bool:
    """Return whether torch drew numbers since its generator was seeded."""
    unused = torch.Generator().manual_seed(seed).get_state()
    return not torch.equal(torch.get_rng_state(), unused)


@contextmanager
def _count_loads() -> Iterator[list[str]]:
    """Yield a list that receives the class of each module that loads a state."""
    loads: list[str] = []
    load_state_dict: Any = torch.nn.Module.load_state_dict

    @functools.wraps(load_state_dict)
    def count(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        loads.append(type(module).__name__)
        return load_state_dict(module, *args, **kwargs)

    setattr(torch.nn.Module, load_state_dict.__name__, count)
    try:
        yield loads
    finally:
        setattr(torch.nn.Module, load_state_dict.__name__, load_state_dict)


def digest_weights(model: Model) -> dict[str, str]:
    """Return a digest of each parameter and buffer, by its name in a message."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {
        **{f"the parameter '{name}'": _digest(item) for name, item in model.named_parameters()},
        **{f"the buffer '{name}'": _digest(item) for name, item in model.named_buffers()},
    }


def _digest(weight: torch.Tensor) -> str:
    if weight.layout is not torch.strided or weight.is_quantized:
        return ""
    data: Array = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(data.data, digest_size=16).hexdigest() + str(tuple(weight.shape))
