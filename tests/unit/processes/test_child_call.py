"""A function in a child process returns its value, raises its error, or ends without both."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Tolerance
from exporter.processes.child_call import ChildFailure, call_in_child

ROOT = Path(__file__).parents[3]
HEAD = """
from __future__ import annotations
import os, sys, time
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Tolerance
"""


def call(folder: Path, function: str, returns: Any, /, **arguments: object) -> Any:
    """Call the only function of a module."""
    (folder / "stub_child.py").write_text(HEAD + function, encoding="utf-8")
    name = function.partition("def ")[2].partition("(")[0]
    return call_in_child(
        f"stub_child:{name}", arguments, returns, {"PYTHONPATH": f"{folder}:{ROOT}"}, seconds=60.0
    )


def test_arguments_and_result_keep_their_types(tmp_path: Path) -> None:
    function = (
        "def double(limit: Tolerance, sizes: tuple[int, ...]) -> Tolerance:\n"
        "    assert sizes == (1, 2)\n"
        "    return limit.model_copy(update={'rtol': 2 * limit.rtol})\n"
    )
    limit = Tolerance(atol=1e-9, rtol=0.25)
    doubled = call(tmp_path, function, Tolerance, limit=limit, sizes=(1, 2))
    assert doubled == Tolerance(atol=1e-9, rtol=0.5)


def test_numbers_without_a_json_form_are_kept(tmp_path: Path) -> None:
    function = "def negate(value: float) -> float:\n    return -value\n"
    assert call(tmp_path, function, float, value=math.inf) == -math.inf


def test_a_tuple_and_a_text_are_results(tmp_path: Path) -> None:
    function = "def repeat(text: str) -> tuple[str, ...]:\n    return (text, text)\n"
    assert call(tmp_path, function, tuple[str, ...], text="é\n") == ("é\n", "é\n")


def test_an_error_of_the_function_is_raised_again(tmp_path: Path) -> None:
    function = "def fail() -> None:\n    raise ExporterError(ExitCode.UNREADABLE, 'x: no file')\n"
    with pytest.raises(ExporterError, match=r"^x: no file$") as caught:
        call(tmp_path, function, type(None))
    assert caught.value.exit_code is ExitCode.UNREADABLE


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("os.abort()", -6, "was terminated by SIGABRT"),
        ("1 / 0", 1, "exited with code 1: ZeroDivisionError: division by zero"),
        ("os._exit(0)", 0, "exited with code 0"),
        ("sys.exit(4)", 4, "exited with code 4"),
    ],
)
def test_an_end_without_a_result_is_a_failure(
    tmp_path: Path, body: str, code: int, message: str
) -> None:
    with pytest.raises(ChildFailure) as caught:
        call(tmp_path, f"def end() -> None:\n    {body}\n", type(None))
    assert (caught.value.code, str(caught.value)) == (code, message)


def test_an_error_when_python_ends_is_no_failure(tmp_path: Path) -> None:
    function = (
        "def crash_later() -> int:\n    import atexit; atexit.register(os.abort)\n    return 3\n"
    )
    assert call(tmp_path, function, int) == 3
