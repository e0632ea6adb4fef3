"""mypy compares a call of a plugin, which the core finds by its name, with the function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="`nox -s unit` has no mypy")
ROOT = Path(__file__).parents[2]
CALLS = """import exporter.plugins.landlock
from exporter.core import import_plugin

import_plugin("landlock").restrict_process([])
import_plugin("landlock").restrict_process(1)
import_plugin("landlock").restrict()
"""


def test_a_wrong_call_of_a_plugin_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    cache = f"--cache-dir={tmp_path}/cache"
    config = f"--config-file={ROOT}/pyproject.toml"
    output, errors, _ = api.run([cache, config, str(file)])
    assert not errors
    assert re.findall(r":(\d+): error", output) == ["5", "6"], output
