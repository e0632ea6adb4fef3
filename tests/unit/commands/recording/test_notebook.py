"""A class in a notebook has a command that moves it to a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.commands.recording.sources import describe_source
from exporter.core.errors import ExporterError


def test_a_notebook_as_a_source_names_the_command(tmp_path: Path) -> None:
    expected = r"nb/net.ipynb: a notebook is no module; .* `%%writefile net.py`, .* net.py:Net`"
    with pytest.raises(ExporterError, match=expected):
        describe_source("nb/net.ipynb:Net", ["x=2x8"], [], tmp_path)
