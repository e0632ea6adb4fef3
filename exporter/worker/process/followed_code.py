"""The instructions that Python executes in chosen functions: no module but Python's is needed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, TypeAlias

#: Whether to follow a function that this thread is about to run, or to resume.
Enter: TypeAlias = Callable[[FrameType], bool]
#: Receives an instruction before it runs: a code object and an offset in bytes.
Add: TypeAlias = Callable[[CodeType, int], None]

_NO_NUMBER = "other tools have all numbers of `sys.monitoring`: nothing of a known example is seen"
_MONITORING: Any = getattr(sys, "monitoring", None)
#: The numbers of tools, less usual ones first: a debugger is 0, and coverage is 1.
_TOOLS = (3, 4, 5, 2, 1, 0)


@contextmanager
def follow_code(enter: Enter, add: Add) -> Iterator[None]:
    """Report each instruction of this thread inside, in the functions that `enter` chooses.

    Raises:
        RuntimeError: if other tools have all numbers for tools of this process.
    """
    # From 3.12 on, the first run under `sys.settrace` may report no instruction.
    with (_trace if _MONITORING is None else _monitor)(enter, add):
        yield


def find_blindness() -> str:
    """Follow a known example, and return why its branches are not seen, or ""."""
    try:
        paths = [_follow_example(number) for number in (1, 5)]
    except RuntimeError as error:
        return str(error)
    if paths[0] == paths[1] or not all(paths):
        return "this Python does not report the instructions of a known example"
    return ""


def _follow_example(number: int) -> list[int]:
    path: list[int] = []
    code = _choose.__code__
    with follow_code(lambda frame: frame.f_code is code, lambda _, offset: path.append(offset)):
        _choose(number)
    return path


def _choose(number: int) -> int:
    return 1 if number > 3 else 2


@contextmanager
def _trace(enter: Enter, add: Add) -> Iterator[None]:
    def call(frame: FrameType, *_: object) -> Callable[..., Any] | None:
        if not enter(frame):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return step

    def step(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode":
            add(frame.f_code, frame.f_lasti)
        return step

    previous = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(previous)


@contextmanager
def _monitor(enter: Enter, add: Add) -> Iterator[None]:
    events, thread = _MONITORING.events, get_ident()
    tool = next((each for each in _TOOLS if _MONITORING.get_tool(each) is None), None)
    if tool is None:
        raise RuntimeError(_NO_NUMBER)
    followed: dict[int, CodeType] = {}  # equal code objects have events of their own

    def start(code: CodeType, _: int) -> None:
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller and get_ident() == thread and enter(caller) and id(code) not in followed:
            followed[id(code)] = code
            _MONITORING.set_local_events(tool, code, events.INSTRUCTION)

    def step(code: CodeType, offset: int) -> None:
        if get_ident() == thread:
            add(code, offset)

    callbacks = {events.PY_START: start, events.PY_RESUME: start, events.INSTRUCTION: step}
    _MONITORING.use_tool_id(tool, __name__)
    try:
        for event, callback in callbacks.items():
            _MONITORING.register_callback(tool, event, callback)
        _MONITORING.set_events(tool, events.PY_START | events.PY_RESUME)
        yield
    finally:
        _MONITORING.set_events(tool, events.NO_EVENTS)
        for code in followed.values():
            _MONITORING.set_local_events(tool, code, events.NO_EVENTS)
        for event in callbacks:
            _MONITORING.register_callback(tool, event, None)
        _MONITORING.free_tool_id(tool)
