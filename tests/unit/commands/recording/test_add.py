"""The options of `add`, and its messages, each of which names the option that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.commands.recording.observation import Observation
from exporter.commands.recording.sources import choose_settings, describe_source, name_option
from exporter.core.errors import ExporterError


@pytest.mark.parametrize(
    ("problem", "option"),
    [
        ("TypeError: Net.forward() missing 1 required positional argument: 'past'", "`--call "),
        ("TypeError: Net.__init__() missing 1 required positional argument: 'n'", "`--init "),
        ("RuntimeError: scalar types: Long, Int; but got torch.FloatTensor", "SIZES:DTYPE`"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "sizes of `--input`"),
        ("the weights of a.pt do not fit: size mismatch for\n\tx.", "another size of the model"),
        ("the weights of a.pt do not fit: it has no tensors by name", "a state_dict"),
        ("ValueError: anything else", "`--init` changes the model"),
    ],
)
def test_each_problem_of_a_model_names_an_option(problem: str, option: str) -> None:
    message = name_option(problem, Observation())
    assert option in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("weights", "id", "problem"),
    [
        ("no.pt", "", "--weights no.pt: no such file"),
        (str(Path(__file__)), "", "is outside the project"),
        ("", "My Net", "such as my-net"),
        ("", "results.json", "--name results.json: expected an ID"),
        ("", "net\n", "--name net"),
    ],
)
def test_a_wrong_option_has_a_message(tmp_path: Path, weights: str, id: str, problem: str) -> None:
    with pytest.raises(ExporterError, match=problem):
        choose_settings(weights, id, tmp_path)


def test_weights_of_the_project_and_an_id_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "net.pt").touch()
    path = str(tmp_path / "net.pt")
    assert choose_settings(path, "my-net", tmp_path) == {"weights": path, "id": "my-net"}


@pytest.mark.parametrize("text", ["imge=1x3", "image=1y"])
def test_a_wrong_input_names_the_function_of_the_call(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.py").write_text("class Net:\n    def forward(self, image): ...\n")
    with pytest.raises(ExporterError, match=r"--call FILE\.py:FUNCTION"):
        describe_source(f"{tmp_path}/net.py:Net", [text], [], tmp_path)
