"""The calls of `run_test` in PyTorch's tests of the exporter: models with their inputs.

Input: the file of the tests in a checkout. Output: a `Case` for each call. The manifest names this
file, so a worker builds the same model as the measurement; it imports nothing of this project.
"""

from __future__ import annotations

import importlib
import random
import sys
import unittest
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor, nn

#: Packages that the tests import, and that few cases use.
_OPTIONAL = ("torchvision", "torch_onnx", "torch.onnx._internal.diagnostics")
_OPSET = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of `run_test`."""

    model: Any
    calls: tuple[tuple[Any, ...], ...]
    """The positional arguments of the export, then those of the other runs."""
    options: Mapping[str, Any]
    """The keyword arguments of `run_test`."""

    @property
    def has_only_tensors(self) -> bool:
        """Whether the model is a module and each argument a tensor."""
        values = [value for call in self.calls for value in call]
        is_module = isinstance(self.model, nn.Module)
        is_script = isinstance(self.model, torch.jit.ScriptModule)
        return is_module and not is_script and all(isinstance(each, Tensor) for each in values)


class _Recorder(unittest.TestCase):
    """The base class of the tests; `run_test` records a call and exports nothing."""

    opset_version = _OPSET
    keep_initializers_as_inputs = False
    is_script = False
    is_script_test_enabled = False
    check_shape = check_dtype = True

    def setUp(self) -> None:
        """Seed all generators."""
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        self.cases: list[Case] = []
        self.last = sys.maxsize

    def run_test(
        self,
        model: Any,
        input_args: Any,
        input_kwargs: Any = None,
        rtol: float = 1e-3,
        atol: float = 1e-7,
        **options: Any,
    ) -> None:
        """Record a call; end the test after the last one that is needed."""
        others = options.get("additional_test_inputs") or ()
        calls = tuple(_copy_call(each) for each in (input_args, *others))
        options |= {"input_kwargs": input_kwargs, "rtol": rtol, "atol": atol}
        self.cases.append(Case(model=model, calls=calls, options=options))
        if len(self.cases) > self.last:
            self.skipTest("the case is complete")


def _copy_call(call: Any) -> tuple[Any, ...]:
    values = call if isinstance(call, tuple) else (call,)
    return tuple(each.detach().clone() if isinstance(each, Tensor) else each for each in values)


def load_tests(file: Path) -> Mapping[str, type[_Recorder]]:
    """Import the tests; return the class of each by name."""
    absent = []
    for name in _OPTIONAL:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = MagicMock()
            absent.append(name)
    _replace("parameterized", parameterized_class=lambda *_, **__: lambda cls: cls)
    _replace(
        "onnx_test_common",
        _TestONNXRuntime=_Recorder,
        MIN_ONNX_OPSET_VERSION=9,
        MAX_ONNX_OPSET_VERSION=_OPSET,
        parameterize_class_name=None,
        run_model_test=None,
    )
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = importlib.import_module(file.stem)
    for name in absent:
        del sys.modules[name]  # torch looks for torchvision, and prints errors for a stand-in
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    recorders = [each for each in classes if issubclass(each, _Recorder) and each is not _Recorder]
    return {name: each for each in recorders for name in dir(each) if name.startswith("test_")}


def _replace(name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    vars(module).update(SimpleNamespace(**attributes).__dict__)
    sys.modules[name] = module


def run_until(tests: Mapping[str, type[_Recorder]], test: str, last: int) -> list[Case]:
    """Run a test up to the call with this number; return its calls until then."""
    recorder = tests[test](test)
    recorder.setUp()
    recorder.last = last
    try:
        with redirect_stdout(StringIO()):
            getattr(recorder, test)()
    except Exception:  # noqa: BLE001, S110 - a skipped or failed test has the calls before
        pass
    return recorder.cases


def build(file: str, test: str, call: int) -> nn.Module:
    """Return the model of a call, in eval mode: the `source` of the manifest."""
    cases = run_until(load_tests(Path(file)), test, call)
    model: nn.Module = cases[call].model
    return model.eval()


def run_eagerly(model: nn.Module, call: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the outputs of a model that returns tensors.

    Raises:
        TypeError: if it returns something else.
    """
    with torch.no_grad():
        outputs = model(*(each.clone() for each in call))
    outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    if not all(isinstance(each, Tensor) for each in outputs):
        raise TypeError("an output is no tensor")
    return [each.detach().clone() for each in outputs]


def list_cases(file: Path, globs: Sequence[str]) -> Iterator[tuple[str, int, Case]]:
    """Yield the name of each selected test, the number of the call, and the case."""
    tests = load_tests(file)
    for test in tests:
        if not any(fnmatchcase(test, glob) for glob in globs):
            continue
        for number, case in enumerate(run_until(tests, test, sys.maxsize)):
            yield test, number, case
