"""A class in a notebook has a command that moves it to a module."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.commands.recording.sources import describe_source
from exporter.core.errors import ExporterError

CELLS = [
    {"cell_type": "markdown", "source": "class Text:"},
    {"cell_type": "code", "source": ["%matplotlib inline\n", "class Magic: ..."]},
    {"cell_type": "code", "source": ["class Net:\n", "    pass\n"]},
]


@pytest.mark.parametrize(
    ("content", "source", "problem"),
    [
        (
            json.dumps({"cells": CELLS}),
            "my-net.ipynb:Net",
            r"`%%writefile my_net\.py`, .* add my",
        ),
        (json.dumps({"cells": CELLS}), "my-net.ipynb:Nte", "no cell defines Nte; did you mean 'N"),
        (json.dumps({"cells": CELLS}), "my-net.ipynb:Other", "no cell defines Other; it has Net"),
        ("{", "my-net.ipynb:Net", "%%writefile"),
        (json.dumps({"cells": [3]}), "my-net.ipynb:Net", "%%writefile"),
        ("", "none.ipynb:Net", r"none\.ipynb: no such file"),
        (json.dumps({"cells": CELLS}), "my-net.ipynb", r"expected FILE\.py:CLASS .* defines Net$"),
        ("", "none.ipynb", "expected .* or package.module:CLASS$"),
    ],
)
def test_a_notebook_as_a_source_names_the_command(
    tmp_path: Path, content: str, source: str, problem: str
) -> None:
    (tmp_path / "my-net.ipynb").write_text(content)
    with pytest.raises(ExporterError, match=problem):
        describe_source(f"{tmp_path}/{source}", ["x=2x8"], [], tmp_path)
