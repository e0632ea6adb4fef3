"""Observe a Python process: constructors, weights and calls of `torch.onnx.export`.

A generated `sitecustomize.py` calls `install` in each Python process of the command. Nothing here
changes a result of the process, and no error here reaches it.
"""

from __future__ import annotations

import copy
import functools
import importlib.machinery
import inspect
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from exporter.commands.recording.child.constructor_call import ConstructorCall

#: Calls of one class that are stored; later ones rarely have other sizes.
_CALLS = 40
_OPTIONS = (
    "export_params", "keep_initializers_as_inputs", "external_data", "optimize",
    "do_constant_folding", "custom_opsets", "operator_export_type", "training",
    "autograd_inlining",
)  # fmt: skip
_UNEXPRESSED = ("custom_translation_table", "export_modules_as_functions")


def install(output: str, model: str = "", package: str = "") -> None:
    """Observe this process from now on, before it imports torch.

    Args:
        output: The folder of the observations.
        model: `file.py:Class` or `module:Class`: observe the calls of this class.
        package: Observe the outermost calls of the modules of this package.
    """
    observer = _Observer(Path(output), model, package)
    actions: dict[str, Callable[[Any], None]] = {
        "torch.nn.modules.module": observer.watch_modules,
        "torch.serialization": functools.partial(observer.watch_files, reads="load", writes="save"),
        "torch.optim.optimizer": observer.watch_training,
        "torch.onnx": observer.watch_exports,
        "safetensors": functools.partial(observer.watch_files, reads="safe_open"),
        "safetensors.torch": functools.partial(
            observer.watch_files, reads="load_file", writes="save_file"
        ),
    }
    sys.meta_path.insert(0, _Finder(actions))
    (Path(output) / f"{os.getpid()}.started").touch()


class _Finder(importlib.machinery.PathFinder):
    """Finds the modules as usual, and calls an action after their execution."""

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._actions = dict(actions)

    def find_spec(  # type: ignore[override]
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification of an observed module, or None for all others."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                with suppress(Exception):
                    action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


class _Observer:
    """The observations of one process."""

    def __init__(self, output: Path, model: str, package: str) -> None:
        self._output = output
        self._model = model
        self._package = package
        self._started: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._constructions: dict[int, ConstructorCall] = {}
        #: The last plain arguments of each class, for models that `pickle` or `copy` creates.
        self._latest: dict[type, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._loaded: set[type] = set()
        self._has_trained = False
        #: Tensors that a file has or an optimizer changed: by address, a reference to it.
        self._known: dict[int, Any] = {}
        self._files: dict[str, None] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._thread = threading.local()  # its attribute `depth`: calls that the thread is in
        self._seen: set[tuple[Any, ...]] = set()
        self._chosen: dict[type, bool] = {}
        self._folder = str(Path.cwd())

    def watch_modules(self, module: Any) -> None:
        """Store the arguments of constructors, and the calls of the chosen classes."""
        owner: Any = module.Module

        initialize, load = owner.__init__, owner.load_state_dict

        def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = object.__new__(cls)
            if cls.__new__ is construct:  # else another `__new__` may have changed the arguments
                self._started[id(made)] = (_copy(args), _copy(kwargs))
            return made

        @functools.wraps(initialize)
        def initialize_module(module: Any, *args: Any, **kwargs: Any) -> None:
            # `copy` and `pickle` create modules without it.
            if call := self._started.pop(id(module), None):
                remove = functools.partial(self._forget, id(module))
                reference = weakref.ref(module, remove)
                self._constructions[id(module)] = ConstructorCall(reference, *call)
                is_own = not type(module).__module__.startswith("torch.")
                if is_own and all(map(_is_plain, (*call[0], *call[1].values()))):
                    self._latest[type(module)] = call
            initialize(module, *args, **kwargs)

        owner.__new__, owner.__init__ = construct, initialize_module

        @functools.wraps(load)
        def load_state(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            result = load(module, state, *args, **kwargs)
            self._add_loaded(module)
            with suppress(Exception):
                names = [name for name, each in state.items() if self._is_known(each)]
                weights = module.state_dict(keep_vars=True)
                self._add_known(weights[name] for name in names if name in weights)
            return result

        owner.load_state_dict = load_state
        if self._model or self._package:
            module.register_module_forward_pre_hook(self._enter_call)
            module.register_module_forward_hook(
                self._leave_call, with_kwargs=True, always_call=True
            )

    def _add_loaded(self, module: Any) -> None:
        types = {type(module), *map(type, module.modules())}
        self._loaded |= {each for each in types if not each.__module__.startswith("torch.")}

    def watch_training(self, module: Any) -> None:
        """Store the weights that an optimizer changes."""

        def store(optimizer: Any, *_: Any) -> None:
            self._has_trained = True
            self._add_known(each for group in optimizer.param_groups for each in group["params"])

        module.register_optimizer_step_post_hook(store)

    def _add_known(self, tensors: Iterable[Any]) -> None:
        self._known.update((each.data_ptr(), weakref.ref(each)) for each in tensors)

    def _is_known(self, tensor: Any) -> bool:
        reference = self._known.get(tensor.data_ptr())
        known = reference() if reference else None
        return known is not None and known.data_ptr() == tensor.data_ptr()

    def _is_trained(self, model: Any) -> bool:
        """Return whether each weight is known, so that none has its initial value."""
        with suppress(Exception):
            weights = [each for each in model.parameters() if each.is_floating_point()]
            return bool(weights) and all(map(self._is_known, weights))
        return False

    def _forget(self, key: int, _: object) -> None:
        self._constructions.pop(key, None)

    def watch_files(self, module: Any, reads: str = "", writes: str = "") -> None:
        """Store the paths of the files with tensors that two functions read and write."""
        if reads:
            load = getattr(module, reads)

            @functools.wraps(load)
            def observed_load(file: Any, *args: Any, **kwargs: Any) -> Any:
                self._add_path(file)
                result = load(file, *args, **kwargs)
                with suppress(Exception):
                    self._add_content(result)
                return result

            setattr(module, reads, observed_load)
        if writes:
            save = getattr(module, writes)

            @functools.wraps(save)
            def observed_save(content: Any, *args: Any, **kwargs: Any) -> Any:
                result = save(content, *args, **kwargs)
                self._add_path(args[0] if args else kwargs.get("f", kwargs.get("filename")))
                return result

            setattr(module, writes, observed_save)

    def _add_content(self, content: Any) -> None:
        """Store the tensors of a file: those of a whole model, or of tables by name."""
        if callable(getattr(content, "state_dict", None)):
            self._add_loaded(content)
            self._add_known(content.state_dict(keep_vars=True).values())
        elif isinstance(content, Mapping):
            for each in content.values():
                self._add_content(each)
        elif hasattr(content, "data_ptr"):
            self._add_known([content])

    def _add_path(self, file: Any) -> None:
        with suppress(Exception):  # an open file has a name, and a buffer has none
            path = str(Path(os.fspath(getattr(file, "name", file))).resolve())
            if Path(path).parent != self._output.resolve():  # else an observation
                self._files.pop(path, None)  # the latest is the last one
                self._files[path] = None

    def watch_exports(self, module: Any) -> None:
        """Observe `torch.onnx.export`, and the functions of older scripts."""
        if not hasattr(module, "__getattr__"):  # Python calls it for missing names only
            module.__getattr__ = functools.partial(self._refuse_attribute, module.__name__)
        for owner in (module, getattr(module, "utils", None)):
            if owner is not None:
                owner.export = functools.wraps(owner.export)(
                    functools.partial(self._export, owner.export)
                )

    def _refuse_attribute(self, module: str, name: str) -> Any:
        """Store the line that reads the removed function `_export`, and raise as Python does."""
        if name == "_export":
            caller = inspect.stack()[1]
            text = f"{caller.filename}:{caller.lineno}"
            (self._output / f"{os.getpid()}.removed").write_text(text, encoding="utf-8")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def _export(self, export: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._depth:  # `torch.onnx.export` may call `torch.onnx.utils.export`
            return export(*args, **kwargs)
        self._depth += 1
        try:
            number = self._choose_number()
            line = _find_line(inspect.currentframe())
            content, file = self._observe_export(number, export, args, kwargs, line)
            try:
                result = export(*args, **kwargs)
            except BaseException as error:
                text = _describe_error(error)
                if type(error).__module__.startswith("torch.onnx.") and kwargs.get("dynamo", True):
                    text += "; pass `dynamo=False` to try the exporter of older releases"
                self._write({**content, "export_error": text}, number)
                raise
            self._add_file(content, number, file, result)
            return result
        finally:
            self._depth -= 1

    @property
    def _depth(self) -> int:
        """The observed calls that this thread is in."""
        return getattr(self._thread, "depth", 0)

    @_depth.setter
    def _depth(self, depth: int) -> None:
        self._thread.depth = depth

    def _choose_number(self) -> int:
        """Return the number of a call in this process, from 1."""
        with self._lock:
            self._count += 1
            return self._count

    def _observe_export(
        self, number: int, export: Callable[..., Any], args: Any, kwargs: Any, line: int
    ) -> tuple[dict[str, Any], Any]:
        """Store the call; return its description and the path of the file."""
        file = None
        try:
            signature = inspect.signature(export)
            bound = signature.bind(*args, **kwargs).arguments
            file = bound.get("f")
            content = {"kind": "export", **self._describe_export(number, signature, bound)}
            content["script"]["line"] = line
        except Exception as error:
            content = {"kind": "export", "problem": _describe_error(error)}
        self._write(content, number)
        return content, file

    def _describe_export(
        self, number: int, signature: inspect.Signature, bound: dict[str, Any]
    ) -> dict[str, Any]:
        # It imports torch. Python loads this module in each process of the user's command.
        from exporter.commands.recording.child import call_description

        call = bound.get("args", ())
        call = tuple(call) if isinstance(call, tuple | list) else (call,)
        keywords = dict(bound.get("kwargs") or {})
        if call and isinstance(call[-1], dict) and not keywords:
            *positional, keywords = call
            call = tuple(positional)
        content = self._describe_model(number, bound["model"], call, keywords)
        call_description.add_declarations(content, bound["model"], bound)
        options = {}
        for name in _OPTIONS:
            value = bound.get(name)
            if name in bound and value != signature.parameters[name].default and value is not None:
                options[name] = getattr(value, "name", value)
        notes = [f"`{name}` of the script" for name in _UNEXPRESSED if bound.get(name)]
        exporter = {True: "dynamo", False: "torchscript"}.get(bound.get("dynamo"), "")  # type: ignore[arg-type]
        file = bound.get("f")
        title = Path(file).stem if isinstance(file, str | os.PathLike) else ""
        return {
            **content,
            "opset": bound.get("opset_version"),
            "exporter": exporter,
            "options": options,
            "notes": [*content.get("notes", ()), *notes],
            "title": title,
        }

    def _describe_model(
        self,
        number: int,
        model: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        returned: Any = None,
    ) -> dict[str, Any]:
        # They import torch, as above.
        from exporter.commands.recording.child import call_description, construction

        content = call_description.describe_call(
            call_description.list_parameters(model), args, kwargs
        )
        if "problem" not in content:
            content |= call_description.store_call(model, args, kwargs, returned, self._output)
        modules = model.modules() if hasattr(model, "modules") else ()
        main = sys.modules.get("__main__")
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None) or ""
        return {
            **content,
            "class_name": type(model).__qualname__,
            "class_file": _find_file(type(model)),
            "construction": construction.Describer(self._constructions, self._latest).describe(
                model
            ),
            "script": {
                "file": str(Path(self._folder, file).resolve()) if file else "",
                "module": spec.name.removesuffix(".__main__") if spec else "",
                "arguments": sys.argv[1:],
                "folder": self._folder,
                "index": number,
            },
            "is_loaded": any(type(each) in self._loaded for each in modules),
            "has_trained": self._has_trained,
            "is_trained": self._is_trained(model),
            "files": list(self._files),
        }

    def _add_file(self, content: dict[str, Any], number: int, file: Any, result: Any) -> None:
        """Add the file, and the opset and the names of outputs that the script leaves to torch."""
        with suppress(Exception):
            is_dynamo = hasattr(result, "model")  # dynamo returned a program
            if isinstance(file, str | os.PathLike):
                exporter = "dynamo" if is_dynamo else "torchscript"
                content = {**content, "written": {str(Path(file).resolve()): exporter}}
                self._write(content, number)
            if is_dynamo:
                graph = result.model.graph
                opset = result.model.opset_imports[""]
                names = [each.name for each in graph.outputs]
                dims = {
                    each.name: [str(getattr(dim, "value", dim)) for dim in each.shape or ()]
                    for each in (*graph.inputs, *graph.outputs)
                }
            else:
                import onnx

                model = onnx.load(file, load_external_data=False)
                opset = next(each.version for each in model.opset_import if not each.domain)
                names = [each.name for each in model.graph.output]
                dims = {
                    each.name: [dim.dim_param for dim in each.type.tensor_type.shape.dim]
                    for each in (*model.graph.input, *model.graph.output)
                }
            opset = content.get("opset") or opset
            self._write(
                {**content, "opset": opset, "file_outputs": names, "file_axes": dims}, number
            )

    def _enter_call(self, module: Any, _: Any) -> None:
        self._depth += self._is_chosen(type(module))

    def _leave_call(self, module: Any, args: Any, kwargs: Any, returned: Any) -> None:
        if not self._is_chosen(type(module)):
            return
        self._depth -= 1
        if self._depth:
            return
        with suppress(Exception):
            # It imports torch, as above.
            from exporter.commands.recording.child.call_description import list_tensors

            call = (type(module), *(tuple(each.shape) for each in list_tensors((args, kwargs))))
            count = sum(key[0] is type(module) for key in self._seen)
            if call in self._seen or count >= _CALLS:
                return
            self._seen.add(call)
            number = self._choose_number()
            try:
                # A second call may return other values, because the first one filled a cache.
                returned = None if module.training else returned
                content = self._describe_model(number, module, tuple(args), dict(kwargs), returned)
            except Exception as error:
                content = {"problem": f"{type(error).__name__}: {error}"}
            self._write({"kind": "call", **content}, number)

    def _is_chosen(self, cls: type) -> bool:
        if cls not in self._chosen:
            self._chosen[cls] = self._matches(cls)
        return self._chosen[cls]

    def _matches(self, cls: type) -> bool:
        if self._package:
            return f"{cls.__module__}.".startswith(f"{self._package}.")
        location, _, name = self._model.rpartition(":")
        if cls.__qualname__ != name:
            return False
        if not location.endswith(".py"):
            return cls.__module__ == location
        return _find_file(cls) == str(Path(location))

    def _write(self, content: dict[str, Any], number: int) -> None:
        path = self._output / f"{os.getpid()}-{number:04}.json"
        part = path.with_suffix(".part")
        try:
            text = json.dumps(content)
        except (TypeError, ValueError) as error:
            text = json.dumps({"kind": content["kind"], "problem": f"cannot be stored: {error}"})
        with suppress(OSError):
            part.write_text(text, encoding="utf-8")
            part.replace(path)


def _find_line(frame: Any) -> int:
    """Return the line of the script that called a frame; 0 if another file did."""
    caller, main = frame.f_back, sys.modules.get("__main__")
    return caller.f_lineno if caller.f_globals is getattr(main, "__dict__", None) else 0


def _describe_error(error: BaseException) -> str:
    """Return the first line of an error, and the folder that hides a package if there is one.

    torch.onnx raises an error about the step, whose cause is the error of the model.
    """
    seen = set[BaseException]()  # `raise error from error` is its own cause
    while error.__cause__ is not None and error not in seen:
        seen.add(error)
        error = error.__cause__
    text = f"{type(error).__name__}: {error}".strip()
    line = text.partition("\n")[0]
    # A line that ends with a colon says nothing without its list.
    text = (" ".join(text.split()) if line.endswith(":") else line)[:300]
    package, _, rest = str(getattr(error, "name", "")).partition(".")
    if isinstance(error, ModuleNotFoundError) and rest:
        places = [*getattr(sys.modules.get(package), "__path__", ())]
        if places and not any("site-packages" in Path(each).parts for each in places):
            folder = os.path.relpath(places[0])
            text += f"; rename the folder {folder}, which hides the installed package {package}"
    return text


def _find_file(cls: type) -> str:
    try:
        return str(Path(inspect.getsourcefile(cls) or "").resolve())
    except (TypeError, OSError):
        return ""


def _is_plain(value: Any) -> bool:
    """Return whether a value refers to no object that it would keep alive."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _copy(value: Any) -> Any:
    """Return a copy of the containers, because a constructor may change its arguments."""
    if type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    if not isinstance(value, dict):
        return value
    try:
        copied = copy.copy(value)  # of its class, such as a configuration of yacs
        for key, each in value.items():
            dict.__setitem__(copied, key, _copy(each))
    except Exception:  # code of the class runs
        return value
    return copied
