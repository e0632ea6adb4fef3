"""The instructions of a function are seen in a new process, on each Python of the machine.

pytest would hide a fault: an earlier traced run of the process can repair the first one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

SCRIPT = """
import json, sys, threading
from exporter.worker.process.followed_code import find_blindness, follow_code

def library(number):
    return number + 1

def count(number):
    yield from range(number)
    yield "even" if number % 2 == 0 else "odd"

def model(number):
    lambdas = [eval("lambda x: x if x > 3 else -x") for _ in range(2)]
    try:
        [0, 1][number]
    except IndexError:
        library(number)
    return [*count(number), *(each(number) for each in lambdas)]

def run(function, *arguments):
    path, entered = [], set()
    def enter(frame):
        entered.add(frame.f_code.co_name)
        return frame.f_code.co_name in ("model", "count", "<lambda>")
    with follow_code(enter, lambda code, offset: path.append((code.co_name, offset))):
        function(*arguments)
    return path, entered

def run_in_thread(number):
    thread = threading.Thread(target=model, args=(number,))
    thread.start()
    thread.join()

def fail(number):
    model(number)
    raise ValueError

{body}
"""


@cache
def find_python(version: str) -> str:
    """Return a Python of a version that this machine has, or ""; pyenv's shims may not run."""
    folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = (shutil.which(f"python{version}"), *sorted(folders.glob(f"{version}.*/bin/python")))
    for program in map(str, filter(None, (sys.executable, *found))):
        command = [program, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.stdout.strip() == version:
            return program
    return ""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    return find_python(request.param) or pytest.skip(f"no Python {request.param} here")


def call(python: str, body: str) -> Any:
    """Run code in a new process and return what it prints as JSON."""
    process = subprocess.run(
        [python, "-P", "-c", SCRIPT.format(body=body)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_first_run_of_a_process_shows_a_branch(python: str) -> None:
    first, again, other = call(
        python, "print(json.dumps([run(model, number)[0] for number in (1, 1, 6)]))"
    )
    assert first == again
    for name in ("model", "count", "<lambda>"):
        small, large = ({at for each, at in path if each == name} for path in (first, other))
        assert small
        assert large - small, name


def test_only_chosen_functions_of_this_thread_are_followed(python: str) -> None:
    body = "path, entered = run(model, 5)\nother, _ = run(run_in_thread, 5)\n"
    path, entered, other = call(python, f"{body}print(json.dumps([path, [*entered], other]))")
    assert "library" in entered
    assert {name for name, _ in path} == {"model", "count", "<lambda>"}
    assert other == []


def test_equal_functions_are_followed_each(python: str) -> None:
    path = call(python, "print(json.dumps(run(model, 5)[0]))")
    lambdas = [offset for name, offset in path if name == "<lambda>"]
    assert lambdas[: len(lambdas) // 2] == lambdas[len(lambdas) // 2 :] != []


def test_nothing_remains_after_a_failure(python: str) -> None:
    is_kept, tools, later = call(
        python,
        """
old = lambda *_: None
sys.settrace(old)
try:
    run(fail, 5)
except ValueError:
    pass
is_kept = sys.gettrace() is old
sys.settrace(None)
monitoring = getattr(sys, "monitoring", None)
tools = [monitoring and monitoring.get_tool(each) for each in range(6)]
path = []
with follow_code(lambda frame: False, lambda *each: path.append(each)):
    model(5)
print(json.dumps([is_kept, tools, path]))
""",
    )
    assert is_kept
    assert tools == [None] * 6
    assert later == []


def test_the_known_example_is_seen(python: str) -> None:
    assert call(python, "print(json.dumps([find_blindness(), find_blindness()]))") == ["", ""]


def test_a_silent_python_is_noticed(python: str) -> None:
    # The cause of the known case: an event that is never reported.
    text = call(
        python,
        """
from contextlib import nullcontext
from exporter.worker.process import followed_code
followed_code._trace = followed_code._monitor = lambda *_: nullcontext()
print(json.dumps(find_blindness()))
""",
    )
    assert text == "this Python does not report the instructions of a known example"


def test_missing_numbers_of_tools_are_noticed(python: str) -> None:
    body = "[sys.monitoring.use_tool_id(each, 'other') for each in range(6)]\n"
    body += "print(json.dumps(find_blindness()))"
    if python == find_python("3.11"):
        pytest.skip("3.11 has no tools")
    assert call(python, body) == (
        "other tools have all numbers of `sys.monitoring`: nothing of a known example is seen"
    )
