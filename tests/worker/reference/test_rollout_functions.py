"""The functions of a rollout: values of each step, and PyTorch's own loop as the oracle."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch

from exporter.checks.protocol import read_sample
from exporter.core.import_object import load_attribute
from exporter.jobs import JobFolder, Sample
from exporter.manifest import ModelSpec, Output, Rollout, load_project
from exporter.worker.process.failure import Failure
from exporter.worker.reference.rollout import compute_reference
from exporter.worker.reference.rollout_functions import require_loop
from tests.unit.factory import make_spec
from tests.unit.manifest.projects import make_project
from tests.worker.contracts import ROOT, declare

HEAD = "import itertools, math, random\nimport numpy as np\nimport torch\n"
NET = declare("x [batch, 4], t int64 [batch], flag bool [], w [] -> y [batch, 4], n int64 [batch]")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.half = 0.5

    def forward(
        self, x: torch.Tensor, t: torch.Tensor, flag: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        step = (x * self.half + w) * t[:, None]
        return torch.where(flag, x, step), t + 1


def run(
    root: Path, *, code: str | tuple[float, ...] = "", name: str = "t", loop: str = ""
) -> tuple[ModelSpec, list[Sample]]:
    """Return the steps of three runs, with a function for an input or a loop."""
    text = code if isinstance(code, str) else ""
    (root / "values.py").write_text(f"{HEAD}{text or loop}\n")
    rollout = Rollout(
        steps=3,
        feeds={"y": "x"},
        constants={name: "values.py:f" if text else code} if code else {},
        loop="values.py:loop" if loop else None,
    )
    values = {"id": "net", "manifest": "net.toml", "line": 1, "source": "nets.py:Net"}
    spec = ModelSpec.model_validate(
        {**values, "opsets": (18,), "devices": ("cpu",), **NET, "rollout": rollout}
    )
    inputs = {
        "x": torch.ones(3, 4),
        "t": torch.tensor([1, 2, 3]),
        "flag": torch.tensor(False),
        "w": torch.tensor(0.25),
    }
    # Each test has a file of this name.
    sys.modules.pop("values", None)
    sys.path[:] = [each for each in sys.path if "test_" not in each]
    folder = JobFolder(root / "build")
    with torch.no_grad():
        return spec, list(compute_reference(Net(), spec, inputs, folder, root))


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("t", "def f(steps): return torch.arange(steps)", [[0] * 3, [1] * 3, [2] * 3]),
        ("t", "def f(): return [[1, 2, 3], [3, 2, 1], [0, 0, 0]]", [[1, 2, 3], [3, 2, 1], [0] * 3]),
        ("t", "def f(n): return np.arange(n * 3, dtype='int32').reshape(n, 3)", None),
        ("flag", "def f(): return [False, True, False]", [False, True, False]),
        ("w", "def f(): return np.linspace(0, 1, 3)", [0.0, 0.5, 1.0]),
        ("w", "def f(): return [1, 2, torch.tensor(3.5)]", [1.0, 2.0, 3.5]),
        ("w", "def f(): return torch.rand(3)", None),
        ("w", (1, 0.5, 0), [1.0, 0.5, 0.0]),
        ("t", (3, 0, 1), [[3] * 3, [0] * 3, [1] * 3]),
        ("flag", (True, False, True), [True, False, True]),
    ],
)
def test_each_step_has_the_value_of_the_function(
    tmp_path: Path, name: str, code: str | tuple[float, ...], expected: list[object] | None
) -> None:
    spec, steps = run(tmp_path, name=name, code=code)
    tables = [
        read_sample(JobFolder(tmp_path / "build").locate(step), spec).inputs for step in steps
    ]
    values = [table[name] for table in tables]
    dtype = next(item.dtype for item in spec.inputs if item.name == name)
    assert {(each.dtype.name, each.shape) for each in values} == {(dtype, tables[0][name].shape)}
    if expected:
        assert [each.tolist() for each in values] == expected


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("t", "def f(): return [1, 2]", "values.py:f: returns 2 values, and the loop has 3 steps"),
        ("t", "def f(): return 3", "returns a int, expected an array [steps, ...] or a list"),
        ("t", "def f(): return itertools.count()", "returns a count, expected an array"),
        ("t", "def f(): return torch.tensor(3)", "expected an array [steps, ...] or a list"),
        ("t", "f = 3", "values.py:f: is a int, expected a function"),
        ("t", "def f(): return [1, 2.0, 3]", "f, step 2: the value of 't' is float32, declared"),
        ("flag", "def f(): return [0, 1, 0]", "the value of 'flag' is int64, declared bool"),
        ("t", "def f(): return [True] * 3", "the value of 't' is bool, declared int64"),
        ("t", "def f(): return [[1, 2]] * 3", "has the shape [2], the input has [3]"),
        ("w", "def f(): return [[1.0]] * 3", "has the shape [1], the input has []"),
        ("w", "def f(): return [1.0, math.nan, 1.0]", "step 2: the value of 'w' is not finite in"),
        ("w", "def f(): return np.array([1, 2, 1e300])", "step 3: the value of 'w' is not finite"),
        ("w", "def f(): return [2**24 + 1] * 3", "the value of 'w' is int64, declared float32"),
        (
            "t",
            "def f(): return ['a', 'b', 'c']",
            "f, step 1: the value is a str, expected a number, an",
        ),
        ("w", "def f(): return [1.0, None, 1.0]", "f, step 2: the value is a NoneType, expected"),
        (
            "t",
            "def f(): return [1, 2, [3, [4]]]",
            "f, step 3: the value is a list, expected a number",
        ),
        ("t", "def f(): raise KeyError('no schedule')", "KeyError: 'no schedule'"),
        ("t", "def g(): ...", "has no attribute 'f'"),
        (
            "w",
            "s = iter(range(99))\ndef f(): return [next(s)] * 3",
            "other values in a second call",
        ),
        (
            "w",
            "s = iter([[1.0] * 3, [1.0]])\ndef f(): return next(s)",
            "values.py:f: returns 1 value, and the loop has 3 steps",
        ),
    ],
)
def test_values_that_do_not_fit_are_named(
    tmp_path: Path, name: str, code: str | tuple[float, ...], message: str
) -> None:
    with pytest.raises(Failure, match=re.escape(message)):
        run(tmp_path, name=name, code=code)


LOOP = """
def yield_one_tensor(steps):
    value = torch.empty_like(steps[0][0])
    for y, _ in steps:
        yield {"y": value.copy_(y)}

def loop(model, inputs):
    x, others = inputs.pop("x"), list(inputs.values())
    steps = []
    for number in range(3):
        x, n = model(x, *others)
        steps.append((x, n))
    return {}
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("steps", ""),
        ("iter(steps)", ""),
        ("steps[-1]", ""),
        ("{'y': x}", ""),
        ("[{'y': x} for x, _ in steps]", ""),
        ("{'y': x * (1 + 1e-6)}", ""),
        ("[model.eval(), setattr(model, 'half', 9), {'y': x}][-1]", ""),
        ("yield_one_tensor(steps)", ""),
        (
            "[model.unused.zero_(), {'y': x}][-1]",
            "values.py:loop: changes the parameter 'unused' of the model; use a copy",
        ),
        ("{'y': x * 1.01}", "step 3 of 3: output 'y' differs from values.py:loop by 0.0"),
        (
            "[(x, n + (k == 1)) for k, (x, n) in enumerate(steps)]",
            "step 2 of 3: output 'n' differs",
        ),
        ("{'y': x[:2]}", "step 3 of 3: output 'y' is [3, 4], and [2, 4] in values.py:loop"),
        ("{'y': x * float('nan')}", "step 3 of 3: output 'y' differs from values.py:loop by NaN"),
        ("x", "returns 1 value, and the entry has the outputs y, n; return a dict by their names"),
        ("steps[:2]", "values.py:loop: returns 2 steps, and `rollout` has 3"),
        ("None", "returns a NoneType, expected a tensor, a tuple or a dict by names"),
        ("{}", "returns a dict, expected"),
        ("{'z': x}", "returns z, and the entry has the outputs y, n"),
        ("{'y': 3}", "the output 'y' is a int, expected a tensor"),
    ],
)
def test_the_steps_are_those_of_the_loop_of_the_project(
    tmp_path: Path, returned: str, message: str
) -> None:
    loop = LOOP.replace("return {}", f"return {returned}")
    if not message:
        assert len(run(tmp_path, loop=loop)[1]) == 3
        return
    with pytest.raises(Failure, match=re.escape(message)) as caught:
        run(tmp_path, loop=loop)
    if " of 3: " in message:
        assert caught.value.message.endswith(
            "; correct `feeds`, `constants` or the inputs of the entry"
        )


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("value", "expected", "problem"),
    [
        ([1.0, -INF, NAN], [1.0 + 1e-6, -INF, NAN], ""),
        ([], [], ""),
        ([1.0, 2.0], [1.0, INF], "by inf of 1;"),
        ([1.0, INF], [1.0, -INF], "by inf of 1;"),
        ([1.0, 2.0], [1.0, NAN], "by NaN;"),
        ([1 + 1j], [1 + (1 + 1e-6) * 1j], ""),
        ([1 + 1j], [1 + 2j], "by 1 of "),
        ([2**60], [2**60 + 1], "in 1 of 1 element;"),
        ([True, True], [False, True], "in 1 of 2 elements;"),
    ],
)
def test_rounding_is_no_difference_of_two_loops(
    value: list[float], expected: list[float], problem: str
) -> None:
    of_loop = {"y": torch.tensor(expected)}
    spec = make_spec(
        outputs=(Output(name="y", shape=("n",)),),
        rollout=Rollout(steps=2, feeds={"y": "x"}, loop="loops.py:run"),
    )
    if not problem:
        assert require_loop(spec, 0, (torch.tensor(value),), [of_loop])[0] is not None
        return
    with pytest.raises(Failure, match=re.escape(f"differs from loops.py:run {problem}")):
        require_loop(spec, 0, (torch.tensor(value),), [of_loop])


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_loop_that_returns_one_tensor_for_all_steps_has_a_hint(*, is_shared: bool) -> None:
    spec = make_spec(
        outputs=(Output(name="y", shape=("n",)),),
        rollout=Rollout(steps=2, feeds={"y": "x"}, loop="loops.py:run"),
    )
    returned = [{"y": torch.tensor([2.0 if is_shared else 3.0])}, {"y": torch.tensor([2.0])}]
    with pytest.raises(Failure, match=r"differs from loops\.py:run by") as caught:
        require_loop(spec, 0, (torch.tensor([1.0]),), returned)
    assert ("return `clone()` of it" in str(caught.value)) is is_shared


def test_the_recipe_has_the_steps_of_its_loop(tmp_path: Path) -> None:
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    pattern = r"```\w+\n# (manifests/sampler\.\w+)\n(.*?)```"
    blocks = dict(re.findall(pattern, page, re.DOTALL))
    (spec,) = load_project(make_project(tmp_path, blocks)).models
    torch.manual_seed(0)
    model = load_attribute("sampler.py:Step", tmp_path / "manifests")()
    inputs = {
        "sample": torch.randn(3, 4),
        "timestep": torch.zeros(3, dtype=torch.int64),
        "guidance": torch.tensor(1.0),
    }
    with torch.no_grad():
        steps = compute_reference(model, spec, inputs, JobFolder(tmp_path / "build"), tmp_path)
        assert len(steps) == 8
        wrong = spec.rollout.model_copy(update={"constants": {}})
        spec = spec.model_copy(update={"rollout": wrong})
        message = r"step 8 of 8: output 'next' differs from sampler\.py:sample"
        with pytest.raises(Failure, match=message):
            compute_reference(model, spec, inputs, JobFolder(tmp_path / "build"), tmp_path)
