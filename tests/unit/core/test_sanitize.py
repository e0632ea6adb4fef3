"""Text of models and tools is cleaned before it is printed or stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.text import escape_ci_commands, join_lines, redact, remove_controls
from exporter.report.formats import escape_inline, format_fence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at 0x7f12ab34cd", "at 0x…"),
        ('File "/home/me/project/net.py", line 3', 'File "net.py", line 3'),
        ("/onnxruntime_src/core/reshape_helper.h:91 failed", "reshape_helper.h:91 failed"),
        (r"C:\Users\me\net.py: no", "net.py: no"),
        # What only looks like a path.
        ("see https://example.org/a/b/issues/1", "see https://example.org/a/b/issues/1"),
        ("https://example.org/docs/a.py", "https://example.org/docs/a.py"),
        ("node /layer1/layer1.0/conv1/Conv", "node /layer1/layer1.0/conv1/Conv"),
        ("shape [3, 4]/[5]", "shape [3, 4]/[5]"),
        ("models/vision.py:12", "models/vision.py:12"),
    ],
)
def test_text_that_differs_between_machines_is_removed(text: str, expected: str) -> None:
    assert redact(text, limit=100) == expected


def test_paths_of_a_traceback_are_relative_to_the_project_or_package() -> None:
    package = 'File "/usr/lib/python3.11/site-packages/torch/onnx/utils.py", line 3, in export'
    assert redact(package, limit=100) == 'File "torch/onnx/utils.py", line 3, in export'
    project = f'File "{Path.cwd()}/models/net.py", line 3, in forward'
    assert redact(project, limit=100) == 'File "models/net.py", line 3, in forward'


def test_the_middle_of_a_long_text_is_cut() -> None:
    assert redact("x" * 50, limit=10) == "xxxxx…xxxx"


def test_escapes_and_control_characters_are_removed() -> None:
    assert remove_controls("\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07end") == "red end"
    assert join_lines("two\r\n  lines") == "two lines"


#: Arabic letter mark, zero width, soft hyphen, tag, direction, joiner, filler, Braille, surrogate.
INVISIBLE = "\u061c\u200b\u2060\ufeff\u00ad\U000e0041\u202e\u200d\u034f\u3164\u2800\u2028\ud800"


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_an_invisible_character_is_replaced_on_every_surface(character: str) -> None:
    text, shown = f"al{character}ex", "al\ufffdex"
    surfaces = {
        "terminal": escape_ci_commands(text),
        "line": join_lines(text),
        "record": redact(text, limit=100),
        "markdown": escape_inline(text),
        "fence": format_fence(text).splitlines()[1],
    }
    assert surfaces == dict.fromkeys(surfaces, shown)


@given(st.text())
def test_no_control_character_remains(text: str) -> None:
    shown = remove_controls(text)
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)
    assert "\x1b" not in shown
    assert not any(0x7F <= ord(c) < 0xA0 for c in shown)
