"""Load the text of `source` as a model that is ready to run."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from exporter.cache.states import hash_source
from exporter.checks.validity_checks import BUILD_PREFIX
from exporter.core.import_object import load_attribute, search_project
from exporter.core.system import IS_LINUX
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.python_source import suggest_module
from exporter.manifest.syntax.values import find_next_position
from exporter.records.record import IN_PLACE_OF, Stage, Status
from exporter.runtimes.session import Array
from exporter.worker.dependencies.source_files import Group, classify_path
from exporter.worker.model import captured_models
from exporter.worker.model.generation import require_package
from exporter.worker.model.mapped_weights import map_weights
from exporter.worker.model.model_kinds import Model, ScriptedFunction, is_compiled
from exporter.worker.model.onnx_model import load_file
from exporter.worker.model.replay import is_replay, refuse_work
from exporter.worker.model.weight_files import load_weights
from exporter.worker.process.failure import Failure, report_invalid_entry, wrap_errors
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.process.setup import seed_generators

# The fork server loads them before it forks.


def require_hash(spec: ModelSpec, folder: Path) -> None:
    """Compare the file with the hash in the manifest, before any code of the model runs."""
    if not spec.weights_sha256 or spec.lacks_weights:
        return
    file = spec.weights or spec.source  # a saved model contains its weights
    actual = hash_source(folder / file)
    if actual != spec.weights_sha256:
        raise Failure(
            Stage.SOURCE,
            f"{file}: the sha256 is {actual or 'unknown (the file cannot be read)'}, "
            f"expected {spec.weights_sha256}; restore the file or correct `weights_sha256`",
        )


def load_model(spec: ModelSpec, root: Path) -> Model:
    """Build the model under its seed and set its weights, precision, device and mode.

    Raises:
        Failure: Stage `source`, if the import or the construction fails, or if the result is no
            model. Status `unavailable`, if this machine lacks the export device.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE), map_weights() as store:
        require_hash(spec, folder)
        torch_device = _resolve_device(spec)
        search_project(root)
        if spec.is_onnx_file:
            file: Model = load_file(folder / spec.source, spec)
            store(file)
            return file
        if spec.is_saved_program:
            model: Any = torch.export.load(folder / spec.source)
        elif spec.is_saved_script:
            load: Callable[..., Any] = torch.jit.load  # torch has no types for it
            model = load(str(folder / spec.source), map_location="cpu")
        else:
            model = _build_model(spec, root)
        if isinstance(model, ExportedProgram):
            loaded: Model = captured_models.load_program(model, spec)
            store(loaded)
            return loaded
        if isinstance(model, torch.jit.ScriptFunction):
            model = ScriptedFunction(model)
        if not isinstance(model, torch.nn.Module):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        if spec.weights and not spec.lacks_weights:
            load_weights(model, spec, folder)
        loaded = prepare_module(model, spec, torch_device)
        store(loaded)
        return loaded


def import_source(spec: ModelSpec, root: Path) -> None:
    """Import the source of a model under its seed, without building the model."""
    with wrap_errors(Stage.SOURCE), map_weights():
        search_project(root)
        if spec.generate is not None:
            require_package()  # its message has the fix
        _load_source(spec, root)


def _load_source(spec: ModelSpec, root: Path) -> Any:
    seed_generators(spec.seed)  # the import builds a model that is an object of the module
    folder = (root / spec.manifest).parent
    try:
        return load_attribute(spec.source, folder)
    except ModuleNotFoundError as error:
        missing, location = error.name or "", spec.source.rpartition(":")[0]
        if f"{location}.".startswith(f"{missing}."):  # not a module that this one imports
            error.msg += suggest_module(missing, (str(folder), str(root)))
        raise


def _resolve_device(spec: ModelSpec) -> torch.device:
    torch_device = torch.device(spec.export_device)
    if torch_device.type == "cpu":
        return torch_device
    module = getattr(torch, torch_device.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (torch_device.index or 0) >= count:
        raise Failure(
            Stage.SOURCE,
            f"export_device = '{spec.export_device}': PyTorch finds {count or 'no'} "
            f"{torch_device.type} device(s) on this machine",
            status=Status.UNAVAILABLE,
        )
    return torch_device


def _build_model(spec: ModelSpec, root: Path) -> Any:
    source = _load_source(spec, root)
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
    with refuse_work(root) if is_replay(source) else nullcontext():
        return source(**spec.init)


def prepare_module(model: torch.nn.Module, spec: ModelSpec, torch_device: torch.device) -> Model:
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
    if torch_device.type != "cpu":
        model.to(torch_device)
    if spec.mode == "eval":
        model.eval()
    elif spec.mode == "train":
        model.train()
    if spec.capture == "script" and not is_compiled(model):
        compiled: torch.nn.Module = torch.jit.script(model)
        return compiled
    return model


#: An argument by position.
_POSITION = re.compile(r"args\[(\d+)\]")


def require_names_in_order(model: Model, spec: ModelSpec) -> None:
    """Compare the names of the inputs with the parameters of `forward` at their positions.

    Whoever feeds the file by the names of the model would exchange two inputs.

    Raises:
        Failure: Stage `source`, if an input has the name of another parameter.
    """
    if spec.generate is not None:  # the part takes its tensors in the order of the entry
        return
    try:
        parameters = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):  # compiled code has none
        return
    paths = [*(each.at for each in spec.constants), *(each.at for each in spec.containers)]
    reserved = frozenset(int(match[1]) for match in map(_POSITION.match, paths) if match)
    last = -1
    for item in spec.inputs:
        match = _POSITION.match(item.at)
        usual = find_next_position(last, reserved)
        last = max(last, int(match[1])) if match else last
        # Another position than the usual one is written in the entry, so it is meant.
        others = parameters[:usual] + parameters[usual + 1 :]
        if item.at == f"args[{usual}]" and usual < len(parameters) and item.name in others:
            message = f"'{item.name}' is the name of another parameter of `forward` than that at "
            message += f"its position, '{parameters[usual]}'; declare the inputs in the order of "
            message += f'`forward`, or add at = "kwargs.{item.name}"'
            prefix = f"{spec.manifest}:{spec.line}: models.{spec.id}.inputs"
            raise report_invalid_entry([f"{prefix}: {message}"])


#: Names in one message.
_MAX_NAMES = 3
#: Modules with running statistics.
_NORMS = (
    torch.nn.BatchNorm1d,
    torch.nn.BatchNorm2d,
    torch.nn.BatchNorm3d,
    torch.nn.InstanceNorm1d,
    torch.nn.InstanceNorm2d,
    torch.nn.InstanceNorm3d,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, with the facts of its builds.

    A model that is built from the time, from unseeded generators or from memory that nobody set has
    other weights in each export, so no record describes the next file.
    """

    model: Model
    change: str = ""
    """The difference of another build from it; empty if there is none."""
    unproved: tuple[str, ...] = ()
    """The promise that another build would prove, if there is none."""
    constants: tuple[str, ...] = ()
    """The weights that have one initial value each, which hides a part of the model."""
    initial: str = ""
    """` of seed 0` if its weights have the values they were drawn with, `: head.weight` if some do,
    ` in place of checkpoints/net.pt` if that file is missing here, else ""."""
    names: frozenset[str] | None = None
    """The parameters before the first call, or None for a saved model."""


def load_model_twice(spec: ModelSpec, root: Path) -> LoadedModel:
    """Return the model, compared with builds of its own and of another seed in forks."""
    if spec.is_saved:
        return LoadedModel(model=load_model(spec, root))
    import_source(spec, root)  # once for all builds
    is_import_drawn = has_drawn(spec.seed)

    def digest_build() -> dict[str, str]:
        return digest_weights(load_model(spec, root))

    def digest_other_seed() -> dict[str, str]:
        with _shift_seeds():
            if is_import_drawn:
                _forget_modules(root)
            return digest_build()

    model = None if IS_LINUX else load_model(spec, root)
    has_builds = can_fork() or not IS_LINUX
    other = compute_in_fork(digest_build) if has_builds else None
    # Without a fork, this process would keep two versions of the classes.
    has_other_seed = other is not None and (IS_LINUX or not is_import_drawn)
    other_seed = compute_in_fork(digest_other_seed) if has_other_seed else None
    model = model or load_model(spec, root)
    if other_seed is None and not spec.weights and (is_import_drawn or has_drawn(spec.seed)):
        other_seed = {}  # nothing shows that a weight is trained
    first = digest_weights(model) if (other, other_seed) != (None, None) else {}
    names = dict.fromkeys((*first, *(other or ())))
    changed = [name for name in names if other is not None and first.get(name) != other.get(name)]
    reason = "the process of the second build ended early, or has threads or uses a GPU"
    unproved = (f"the same weights in each build: {reason}",) if other is None else ()
    initial = ""
    if spec.lacks_weights:
        initial = f"{IN_PLACE_OF}{spec.weights_path}"
    elif other_seed is not None:
        initial = _describe_initial_weights(model, first, other_seed, spec.seed)
    return LoadedModel(
        model=model,
        change=f"{BUILD_PREFIX} {join_names(changed, _MAX_NAMES)}" if changed else "",
        unproved=unproved,
        constants=tuple(_list_constants(model)) if initial else (),
        initial=initial,
        names=frozenset(name for name, _ in model.named_parameters()),
    )


def find_weights_of_calls(
    loaded: LoadedModel, spec: ModelSpec, root: Path, call: Callable[[Model], object]
) -> str:
    """Return which weights the calls of a model drew, as `LoadedModel.initial`.

    `call`: Call a model on inputs. A weight that a call created and that is the same with another
    seed was loaded, by any function.
    """
    current = dict(loaded.model.named_parameters()) if loaded.names is not None else {}
    created = [name for name in current if name not in (loaded.names or ())]
    if not created:
        return ""

    def digest_other_seed() -> dict[str, str]:
        with _shift_seeds():
            other = load_model(spec, root)
            call(other)
            return digest_weights(other)

    others = compute_in_fork(digest_other_seed) if can_fork() or not IS_LINUX else None
    digests, keys = digest_weights(loaded.model), {n: f"the parameter '{n}'" for n in created}
    # Without another call, nothing shows that a weight is trained.
    drawn = [n for n in created if others is None or digests[keys[n]] != others.get(keys[n])]
    if not drawn:
        return ""
    return f": {join_names(drawn, 1)}" if len(drawn) < len(current) else f" of seed {spec.seed}"


def has_drawn(seed: int) -> bool:
    """Return whether torch drew numbers since its generator was seeded."""
    unused = torch.Generator().manual_seed(seed).get_state()
    return not torch.equal(torch.get_rng_state(), unused)


@contextmanager
def _shift_seeds() -> Iterator[None]:
    """Give another seed to each generator that the source seeds inside.

    A weight that is the same with another seed was loaded, by any function, or is a constant.
    """

    def shift(function: Any) -> Any:
        @functools.wraps(function)
        def call(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            return function(seed + 1 if isinstance(seed, int) else seed, *args, **kwargs)

        return call

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(seed + 1)

    places: tuple[tuple[Any, str], ...] = (
        (torch, "manual_seed"),
        (torch.random, "manual_seed"),
        (random, "seed"),
        (np.random, "seed"),
        (np.random, "default_rng"),
    )
    with ExitStack() as restored:
        for module, name in places:
            original = getattr(module, name)
            restored.callback(setattr, module, name, original)
            setattr(module, name, shift(original))
        restored.callback(setattr, torch, "Generator", torch.Generator)
        torch.Generator = Generator  # type: ignore[misc]
        yield


def _forget_modules(root: Path) -> None:
    """Let the next import run the files of the project again, whose objects were drawn."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and classify_path(os.path.realpath(file), os.path.realpath(root)) is Group.PROJECT:
            del sys.modules[name]


def _describe_initial_weights(
    model: Model, digests: Mapping[str, str], others: Mapping[str, str], seed: int
) -> str:
    """Return which weights are initial values, as `LoadedModel.initial`.

    `others`: The digests of the weights with another seed.
    """
    drawn, is_trained = [], False
    for name, weight in model.named_parameters():
        key = f"the parameter '{name}'"
        if digests[key] != others.get(key):
            drawn.append(name)
        else:  # a constant, such as the weight 1 of a norm, is no sign of a training
            is_trained = is_trained or not is_constant(weight)
    if not drawn:
        return ""
    return f": {join_names(drawn, 1)}" if is_trained else f" of seed {seed}"


def _list_constants(model: Model) -> Iterator[str]:
    """Yield the name of each parameter and running statistic whose values are one number.

    A file with such values proves less than one with trained values. A scale of 0 hides the branch
    before it, a table of zeros hides its rows, and a file without a weight of 1 or a bias of 0 has
    the same outputs.
    """
    statistics = (
        (f"{path}.{name}".removeprefix("."), value)
        for path, module in model.named_modules()
        if isinstance(module, _NORMS)
        for name, value in module.named_buffers(recurse=False)
        if value.is_floating_point()
    )
    for name, weight in (*model.named_parameters(), *statistics):
        if weight.is_floating_point() and is_constant(weight):
            value = float(weight.detach().reshape(-1)[0])
            if math.isfinite(value) and (weight.numel() > 1 or value in (0.0, 1.0)):
                yield name


def is_constant(weight: torch.Tensor) -> bool:
    """Return whether all values of a tensor are one number."""
    if weight.layout is not torch.strided or weight.is_quantized or not weight.numel():
        return False
    values = weight.detach().reshape(-1)
    return bool(values[0] == values[-1]) and bool((values == values[0]).all())


def digest_weights(model: Model) -> dict[str, str]:
    """Return a digest of each parameter and buffer, by its name in a message."""
    return {
        **{f"the parameter '{name}'": _digest(item) for name, item in model.named_parameters()},
        **{f"the buffer '{name}'": _digest(item) for name, item in model.named_buffers()},
    }


def _digest(weight: torch.Tensor) -> str:
    if weight.layout is not torch.strided or weight.is_quantized:
        return ""
    data: Array = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(data.data, digest_size=16).hexdigest() + str(tuple(weight.shape))
