"""A construction is `init`, code, or a reason."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import pickle
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporter.commands.recording.child.construction import Describer
from exporter.commands.recording.child.constructor_call import ConstructorCall
from exporter.commands.recording.child.observer import _copy


class Kind(enum.Enum):
    SMALL = 1


@dataclasses.dataclass
class Settings:
    width: int
    kind: Kind = Kind.SMALL


class Options(dict[str, Any]):
    """A configuration whose items are attributes, too."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__({k: Options(v) if type(v) is dict else v for k, v in dict(items).items()})


class Fixed(dict[str, Any]):
    """Has another item than those that it is made of."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__(fixed=len(items))


LAYERS = [[nn.Linear, [4, 8]], [nn.ReLU, []], [nn.Linear, [8, 16]], [nn.ReLU, []]]


class Net(nn.Module):
    def __init__(self, value: Any = None, *others: Any, width: int = 1, **options: Any) -> None:
        super().__init__()


def describe(*args: Any, **kwargs: Any) -> dict[str, Any]:
    model = Net()
    calls = {id(model): ConstructorCall(weakref.ref(model), args, kwargs)}
    inner = args[0] if args else None
    if isinstance(inner, nn.Module):
        calls[id(inner)] = ConstructorCall(weakref.ref(inner), (2, 3), {"bias": False})
    return Describer(calls).describe(model)


def test_plain_arguments_are_init_by_name() -> None:
    content = describe("a", width=3, extra=[1, 2.5, True])
    assert content["init"] == {"value": "a", "width": 3, "extra": [1, 2.5, True]}
    assert (content["name"], content["code"]) == ("Net", "")
    assert Path(content["file"]).name == "test_construction.py"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ((1,), "(1,)"),
        (float("inf"), 'float("inf")'),
        (torch.float16, "torch.float16"),
        (torch.relu, "torch.relu"),
        (nn.ReLU, "torch.nn.modules.activation.ReLU"),
        (Kind.SMALL, f"{__name__}.Kind.SMALL"),
        (Settings(3), f"{__name__}.Settings(width=3, kind={__name__}.Kind.SMALL)"),
        (
            functools.partial(nn.ReLU, inplace=True),
            "functools.partial(torch.nn.modules.activation.ReLU, inplace=True)",
        ),
        ({"a": Path("x")}, "{'a': pathlib.Path('x')}"),
        (Options({"a": {"b": [1]}}), f"{__name__}.Options({{'a': {{'b': [1]}}}})"),
        ([[*each] for each in LAYERS], f"{__name__}.LAYERS"),
        (LAYERS[:1], "[[torch.nn.modules.linear.Linear, [4, 8]]]"),
        (("0" * 50, "1" * 50), f"('{'0' * 50}', '{'1' * 50}')"),
        (("0" * 90,), f"('{'0' * 90}',)"),
        (torch.tensor([1.5]), "torch.tensor([1.5], dtype=torch.float32)"),
    ],
)
def test_other_values_are_code_that_gives_them_again(value: object, code: str) -> None:
    content = describe(value)
    assert content["init"] is None
    assert ast.dump(ast.parse(content["code"])) == ast.dump(ast.parse(f"{__name__}.Net({code})"))
    names = {name: __import__(name, fromlist=["_"]) for name in content["imports"]}
    roots = {name.partition(".")[0]: __import__(name) for name in names}
    again = eval(code, roots)
    assert repr(again) == repr(value)
    assert content["reason"] == "`value` of Net has no notation in TOML"


def test_modules_are_nested_calls() -> None:
    content = describe(nn.Linear(2, 3, bias=False))
    assert "torch.nn.modules.linear.Linear(2, 3, bias=False)" in content["code"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda x: x, "a lambda has no name that can be imported"),
        (object(), "`value` of Net: a value of the class object has no expression"),
        (Fixed({"a": 1, "b": 2}), "`value` of Net: a value of the class Fixed has no expression"),
        (torch.zeros(1000), "`value` of Net: a value of the class Tensor has no expression"),
    ],
)
def test_a_value_without_an_expression_has_a_reason(value: object, reason: str) -> None:
    content = describe(value)
    assert (content["init"], content["reason"]) == (None, reason)


def test_the_argument_without_an_expression_is_that_of_the_inner_module() -> None:
    """A wrapper for the export has the model, which got an example of its inputs."""
    inner, outer = Net(), Net()
    pairs = ((inner, object()), (outer, inner))
    calls = {id(net): ConstructorCall(weakref.ref(net), (each,), {}) for net, each in pairs}
    reason = "`value` of Net: a value of the class object has no expression"
    assert Describer(calls).describe(outer)["reason"] == reason


def test_a_configuration_is_described_as_it_was_passed() -> None:
    options = Options({"a": {"b": [1]}})
    copied = _copy((options,))
    options["a"].pop("b")  # as a constructor does with the kind of a layer
    assert "{'a': {'b': [1]}}" in describe(*copied)["code"]


def test_a_local_class_and_an_unknown_constructor_have_a_reason() -> None:
    class Local(nn.Module):
        pass

    assert Describer({}).describe(Local())["reason"] == "Local is defined inside a function"
    notebook = type("Cell", (nn.Module,), {"__module__": "__main__"})
    main = types.ModuleType("__main__")  # as a kernel has it: without a file
    main.Cell = notebook  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        reason = Describer({}).describe(notebook())["reason"]
    assert "begin the cell of the class and its imports with `%%writefile net.py`" in reason
    reason = "the constructor of Net was not observed"
    assert Describer({}).describe(Net())["reason"] == reason


def test_a_module_of_pickle_has_the_last_arguments_of_its_class() -> None:
    latest = {Net: ((), {"width": 3})}
    content = Describer({}, latest).describe(pickle.loads(pickle.dumps(Net(width=3))))
    assert (content["name"], content["init"]) == ("Net", {"width": 3})
    assert Describer({}, latest).describe(nn.Sequential(Net()))["init"] is None
