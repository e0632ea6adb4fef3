"""The tutorial, the README and the interface of Python do what they say."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import yaml
from onnx import numpy_helper, parser

from exporter import api
from tests.integration.pages import BLOCK, assert_shown, run_command, run_console, run_page
from tests.integration.program_server import describe_servers
from tests.integration.project import ROOT, make_project, run_git, run_python
from tests.integration.results import write_results

#: The pages whose blocks are run, each with the number of its commands with an output to compare.
PAGES = {"README.md": 2, "docs/tutorial.md": 9}
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", ["README.md", pytest.param("docs/tutorial.md", marks=pytest.mark.campaign)]
)
def test_the_blocks_of_a_page_run_and_print_its_outputs(name: str, tmp_path: Path) -> None:
    page = ROOT / name
    compared = 0
    for line, expected, output in run_page(page, tmp_path):
        assert_shown(line, expected, output)
        compared += bool(expected)
    assert compared == PAGES[name]
    checks = {"python": ast.parse, "toml": tomllib.loads, "yaml": yaml.safe_load}
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for language, _, text in blocks:
        if language in checks:
            checks[language](text)
    if name == "docs/tutorial.md":  # it shows the entry that `record` wrote
        recorded = (tmp_path / "manifests/encoder.toml").read_text("utf-8")
        assert ("toml", "", recorded) in blocks


def test_a_block_that_differs_fails(tmp_path: Path) -> None:
    (shown,) = run_console(
        tmp_path, "$ exporter guide E-crash\nE-crash\n...\nnothing of this kind\n"
    )
    with pytest.raises(AssertionError, match="nothing of this kind"):
        assert_shown(*shown)
    with pytest.raises(AssertionError, match="the guide has no section"):
        list(run_console(tmp_path, "$ exporter guide E-crsh\n"))


#: The repository of a reader: a script that exports two trained models.
SCRIPT = """
import os
import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3), nn.Tanh())


class AlexNet(Net):
    pass


if __name__ == "__main__":
    os.makedirs("onnx")
    torch.save(Net().state_dict(), "net.pt")
    for model, path in ((Net(), "onnx/net.onnx"), (AlexNet(), "alexnet.onnx")):
        model.load_state_dict(torch.load("net.pt"))
        torch.onnx.export(
            model.eval(), (torch.randn(2, 4),), path, input_names=["input"], output_names=["y"],
            dynamic_shapes={"input": {0: "batch"}}, opset_version=18,
        )
"""


@pytest.mark.campaign
def test_the_commands_of_readme_and_recipes_run_in_a_repository(tmp_path: Path) -> None:
    """Blocks without a prompt need a project of the reader; `pip install` is not run."""
    (tmp_path / "export.py").write_text(SCRIPT)
    run_git(tmp_path, "init", "-q", "-b", "main")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-qm", "a script")
    lines = re.findall(r"^(exporter [^#\n]+)", README, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        run_command(tmp_path, shlex.split(line), 0)
    for name in ("hub.onnx", "other.onnx"):
        shutil.copy(tmp_path / "alexnet.onnx", tmp_path / name)
    blocks = BLOCK.findall((ROOT / "docs/recipes.md").read_text("utf-8"))
    # The other kinds are run by test_passes.py, test_generation.py and test_artifact.py.
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_product(tmp_path / "old.onnx", weights)
    weights[0, 0] += 1e-3
    write_product(tmp_path / "new.onnx", weights)
    for language, _, text in blocks:
        if language == "console":
            for shown in run_console(tmp_path, text):
                assert_shown(*shown)


def write_product(path: Path, weights: npt.NDArray[np.float32]) -> None:
    """Write a file that multiplies its input with the weights."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> '
        "g (float[batch, 3] x) => (float[batch, 4] y) { y = MatMul(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)


#: Lets the example use the server of workers, so that it does not start its own.
USE_SERVERS = "from tests.integration.program_server import pytest_configure as use; use()"


def read_example() -> str:
    match = re.search(
        r"## Example\n.*?```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL
    )
    assert match
    return match[1]


def test_the_example_exports_accepts_and_gates(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", bad="Raises")
    process = run_python(root, "-c", f"{USE_SERVERS}\n{read_example()}", **describe_servers())
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == "2 cells to run"
    assert sorted(lines[1:3]) == ["good/16/cpu pass", "good/17/cpu pass"]
    assert lines[3] == "green"
    # One cell is accepted, so the other cells have findings.
    assert {line.split()[0] for line in lines[4:]} >= {"good/16/cpu"}
    assert "good/17/cpu" not in {line.split()[0] for line in lines[4:]}
    assert (root / "reports/COMPATIBILITY.md").is_file()


def test_an_unknown_cell_is_not_accepted(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good")
    write_results(root)
    acceptance = api.prepare_acceptance(api.load_project(root))
    with pytest.raises(KeyError, match="good/99/cpu: is in neither the manifests, the results"):
        api.accept(acceptance, cells={api.CellId(model="good", opset=99, device="cpu")})
    assert not (root / "reports/baseline").exists()


def test_all_names_of_the_interface_exist() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    documented = set(re.findall(r"^\| `(\w+)\(", (ROOT / "docs/api.md").read_text(), re.MULTILINE))
    methods = {name for name in documented if name.startswith("on_")}
    assert len(methods) == 5
    assert documented - methods <= set(api.__all__)
