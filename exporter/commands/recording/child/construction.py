"""Describe how a module was constructed: its class with plain arguments, or Python code."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import functools
import inspect
import pprint
import sys
import textwrap
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import torch

from exporter.commands.recording.child.constructor_call import ConstructorCall

#: Elements of a tensor that code contains.
_ELEMENTS = 64
_WIDTH = 88


class Inexpressible(Exception):
    """A value has no Python expression; the text is the reason."""


class _UnknownValue(Inexpressible):
    """An argument of a class that nothing here can write."""


class Describer:
    """Describes modules by the observed calls of their constructors, by `id` of the module.

    `latest`: The last arguments of each class, for a module without a constructor call.
    """

    def __init__(
        self,
        calls: Mapping[int, ConstructorCall],
        latest: Mapping[type, tuple[tuple[Any, ...], dict[str, Any]]] = types.MappingProxyType({}),
    ) -> None:
        self._calls = calls
        self._latest = latest
        self._modules: dict[str, str] = {}
        self._scope: types.ModuleType | None = None

    def describe(self, model: Any) -> dict[str, Any]:
        """Return a `Construction`."""
        self._modules = {}
        try:
            module, name = self._name(type(model))
            call = self._find_call(model)
            named = _bind(type(model), *call)
            is_plain = named is not None and all(map(_is_plain, named.values()))
            code = "" if is_plain and "." not in name else self._express(model)
        except Inexpressible as failure:
            return {"init": None, "reason": str(failure)}
        except (ValueError, TypeError, RecursionError) as error:
            return {"init": None, "reason": f"{type(error).__name__}: {error}"}
        folders = {
            str(Path(file).parents[each.count(".")])
            for each, file in self._modules.items()
            if file and "site-packages" not in file
        }
        others = [key for key, value in (named or {}).items() if not _is_plain(value)]
        words = ", ".join(f"`{each}`" for each in others) or "an argument"
        verb = "have" if len(others) > 1 else "has"
        reason = f"{words} of {name} {verb} no notation in TOML"
        return {
            "module": module,
            "file": self._modules.get(module, ""),
            "name": name,
            "init": None if code else named,
            "code": code,
            "imports": sorted(self._modules),
            "folders": sorted(folders),
            "reason": reason if code else "",
        }

    def _find_call(self, model: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = self._calls.get(id(model))
        if call is not None and call.module() is model:
            return call.args, call.kwargs
        # A trial shows whether the arguments of another module are those of this one.
        if type(model) in self._latest:
            return self._latest[type(model)]
        raise Inexpressible(f"the constructor of {type(model).__qualname__} was not observed")

    def _name(self, value: Any) -> tuple[str, str]:
        """Return module and name of a class or function that an import finds."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(value, types.BuiltinFunctionType):
            module, name = module or "torch", value.__name__
        if "<lambda>" in name:
            raise Inexpressible("a lambda has no name that can be imported")
        if "<locals>" in name:
            raise Inexpressible(f"{name.rpartition('.')[2]} is defined inside a function")
        target: Any = sys.modules.get(str(module))
        for part in name.split("."):
            target = getattr(target, part, None)
        if target is not value or not name:
            raise Inexpressible(f"{name or value!r} cannot be imported from {module}")
        return self._use(str(module)), name

    def _use(self, module: str) -> str:
        """Return the name of a module for an import, and store its file."""
        loaded = sys.modules[module]
        file = str(Path(getattr(loaded, "__file__", None) or "").resolve())
        if module == "__main__":
            if not getattr(loaded, "__file__", None):
                raise Inexpressible(
                    "its class is in a notebook or another text without a module (in a notebook, "
                    "begin the cell of the class and its imports with `%%writefile net.py`)"
                )
            spec = getattr(loaded, "__spec__", None)
            name = spec.name if spec else Path(file).stem
            # No import finds a name with a hyphen, so the classes of such a script are copied.
            module = name if all(map(str.isidentifier, name.split("."))) else module
        if module != "builtins":
            self._modules[module] = file
        return module

    def _express(self, value: Any) -> str:
        """Return a Python expression of a value.

        Raises:
            Inexpressible: If there is none.
        """
        match value:
            case None | bool() | str() | bytes() | int() if type(value) in _LITERALS:
                return repr(value)
            case float() if type(value) is float:
                return repr(value) if value - value == 0 else f'float("{value}")'
            case list() | tuple() | set() | frozenset() | dict() if type(value) in _COLLECTIONS:
                return self._express_constant(value)
            case torch.dtype() | torch.device():
                text = str(value) if isinstance(value, torch.dtype) else f"torch.{value!r}"
            case enum.Enum():
                text = f"{self._refer(type(value))}.{value.name}"
            case type() | types.FunctionType() | types.BuiltinFunctionType():
                text = self._refer(value)
            case functools.partial():
                self._modules["functools"] = ""
                text = self._call("functools.partial", (value.func, *value.args), value.keywords)
            case torch.nn.Module():
                outer, self._scope = self._scope, sys.modules.get(type(value).__module__)
                text = self._call_constructor(value)
                self._scope = outer
            case _:
                text = self._express_object(value)
        if text.startswith("torch."):
            self._modules["torch"] = ""
        return text

    def _call_constructor(self, model: torch.nn.Module) -> str:
        call = self._find_call(model)
        try:
            return self._call(self._refer(type(model)), *call)
        except _UnknownValue:
            for key, value in (_bind(type(model), *call) or {}).items():
                try:
                    self._express(value)
                except _UnknownValue as failure:
                    if isinstance(value, torch.nn.Module):
                        raise  # it has named its own argument
                    text = f"`{key}` of {type(model).__qualname__}: {failure}"
                    raise _UnknownValue(text) from None
            raise

    def _express_constant(self, value: Any) -> str:
        """Return the name of a long value that the module of the class defines, or its items."""
        modules = dict(self._modules)
        text = self._express_items(value)
        if len(text) <= _WIDTH or self._scope is None:
            return text
        for name, each in vars(self._scope).items():
            if not name.startswith("__") and _is_same(each, value):
                self._modules = modules
                return f"{self._use(self._scope.__name__)}.{name}"
        return text

    def _express_items(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = [f"{self._express(k)}: {self._express(v)}" for k, v in value.items()]
            return _join("{", pairs, "}")
        items = [self._express(each) for each in value]
        if isinstance(value, list):
            return _join("[", items, "]")
        if isinstance(value, tuple):
            return _join("(", items, ",)" if len(items) == 1 else ")")
        return _join(f"{type(value).__name__}([", items, "])")

    def _express_object(self, value: Any) -> str:
        cls = type(value)
        if isinstance(value, PurePath):
            self._modules["pathlib"] = ""
            return f"pathlib.Path({str(value)!r})"
        if isinstance(value, torch.Tensor) and value.numel() <= _ELEMENTS:
            return f"torch.tensor({value.detach().cpu().tolist()}, dtype={value.dtype})"
        if isinstance(value, dict):  # a configuration, such as those of yacs and easydict
            plain = _make_plain(value)
            with suppress(Exception):  # code of the class runs
                if _is_same(cls(plain), value):
                    return self._call(self._refer(cls), (plain,), {})
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self._call(self._refer(cls), (), value._asdict())
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                each.name: getattr(value, each.name)
                for each in dataclasses.fields(cls)
                if each.init
            }
            return self._call(self._refer(cls), (), fields)
        if hasattr(value, "to_diff_dict") and hasattr(
            cls, "from_dict"
        ):  # a configuration of transformers
            values = pprint.pformat(value.to_diff_dict(), width=_WIDTH, sort_dicts=False)
            if isinstance(ast.literal_eval(values), dict):  # else a value has no literal
                return f"{self._refer(cls)}.from_dict({values})"
        if cls.__module__ in ("argparse", "types") and cls.__name__ in (
            "Namespace",
            "SimpleNamespace",
        ):
            return self._call(self._refer(cls), (), vars(value))
        raise _UnknownValue(f"a value of the class {cls.__qualname__} has no expression")

    def _refer(self, value: Any) -> str:
        module, name = self._name(value)
        return name if module == builtins.__name__ else f"{module}.{name}"

    def _call(self, function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        words = [self._express(each) for each in args]
        words += [f"{key}={self._express(each)}" for key, each in kwargs.items()]
        return _join(f"{function}(", words, ")")


_LITERALS = (type(None), bool, int, str, bytes)
_COLLECTIONS = (list, tuple, set, frozenset, dict, torch.Size)


def _join(start: str, items: Sequence[str], end: str) -> str:
    """Return the items on a line, or on one line each."""
    text = f"{start}{', '.join(items)}{end}"
    lines = textwrap.indent(",\n".join(items), "    ")
    return text if len(text) <= _WIDTH else f"{start}\n{lines},\n{end.lstrip(',')}"


def _make_plain(value: Any) -> Any:
    """Return a value with plain dicts and lists in place of their subclasses."""
    if isinstance(value, dict):
        return {key: _make_plain(each) for key, each in value.items()}
    return [_make_plain(each) for each in value] if isinstance(value, list) else value


def _is_same(value: Any, other: Any) -> bool:
    """Return whether two values have equal items of equal types."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return [*value] == [*other] and all(_is_same(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(_is_same, value, other))
    return type(value) in (*_LITERALS, float) and bool(value == other)


def _is_plain(value: Any) -> bool:
    """Return whether `init` in a manifest can give the constructor an equal value."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(each) for key, each in value.items())
    is_number = type(value) in (bool, int) or (type(value) is float and value - value == 0)
    return is_number or (type(value) is str and value.isprintable())


def _bind(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a constructor by name, or None if some have no name."""
    named = dict(inspect.signature(cls).bind(*args, **kwargs).arguments)
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
        elif parameter.name in named and parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.POSITIONAL_ONLY,
        ):
            return None
    return named
