"""Text of other programs is cleaned, and numbers, names and commands are formatted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.entry_point import run
from exporter.core.text import (
    DEFAULT_COMMAND,
    escape_ci_commands,
    format_byte_limit,
    format_bytes,
    format_command,
    format_two_digits,
    is_out_of_memory,
    is_out_of_resources,
    join_lines,
    join_names,
    pluralize,
    read_command,
    redact,
    remove_controls,
    replace_commands,
    round_up_two_digits,
)
from exporter.report.formats import escape_inline, format_fence
from tests.unit.manifest.projects import ENTRY, make_project


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


def test_a_count_of_one_has_a_singular_noun() -> None:
    assert [pluralize(count, "cell") for count in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert pluralize(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (2, "w0, w1"), (5, "w0, w1, w2, w3, w4"), (7, "w0, w1, w2, w3, w4 and 2 more")],
)
def test_five_names_are_listed_and_the_others_are_counted(count: int, text: str) -> None:
    assert join_names([f"w{index}" for index in range(count)]) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1234, "1.23 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (244_400_000, "244 MB"),
        (999_600_000, "1.00 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_have_three_significant_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("limit", "text"),
    [(8 << 30, "8GiB"), (500 * 10**6, "500MB"), (3 << 29, "1536MiB"), (1234567890, "1177MiB")],
)
def test_limits_have_the_notation_of_the_manifest(limit: int, text: str) -> None:
    assert format_byte_limit(limit) == text


def test_floats_have_two_significant_digits() -> None:
    assert round_up_two_digits(0.0) == 0.0
    assert round_up_two_digits(0.001) == 0.001  # not 0.0011, although the float is a little larger
    assert format_two_digits(0.012345) == "0.012"
    assert format_two_digits(12345) == "12345"
    assert format_two_digits("many") == "many"


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_value_is_never_rounded_down(value: float) -> None:
    assert value <= round_up_two_digits(value) <= value * 1.1
    assert float(f"{round_up_two_digits(value):.2g}") == round_up_two_digits(value)


def describe(*numbers: int) -> list[str]:
    return [f"OSError: {OSError(number, os.strerror(number))}" for number in numbers]


ALLOCATIONS = (
    "MemoryError",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes",
    *describe(errno.ENOMEM),
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "Failed to allocate memory for requested buffer of size 1024",
    "bad allocation",
)
RESOURCES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
RESOURCES += (errno.EIO, errno.EAGAIN, errno.EFBIG)
OTHERS = (
    *("", "OSError: [Errno 30] Read-only file system: 'a'", "memory format channels_last"),
    *("a bad location", "KeyError: 'memory'"),
    *describe(errno.ENOENT, errno.EACCES, errno.EISDIR),
)


@pytest.mark.parametrize(
    ("text", "lacks_memory", "lacks_resources"),
    [
        *((text, True, True) for text in ALLOCATIONS),
        *((text, False, True) for text in describe(*RESOURCES)),
        *((text, False, False) for text in OTHERS),
    ],
)
def test_messages_about_missing_memory_and_resources_are_detected(
    text: str, lacks_memory: bool, lacks_resources: bool
) -> None:
    assert is_out_of_memory(text) is lacks_memory
    assert is_out_of_resources(text) is lacks_resources


NOX = "nox -s {} --"


def test_the_name_replaces_the_placeholder() -> None:
    assert format_command(DEFAULT_COMMAND, "export", "'net/*'") == "exporter export 'net/*'"
    assert format_command(NOX, "export", "'net/*'") == "nox -s export -- 'net/*'"
    assert format_command(NOX, "gate") == "nox -s gate"
    assert format_command("uv run exporter {}", "gate") == "uv run exporter gate"


def test_only_text_in_backticks_is_a_command() -> None:
    result = "run `exporter export net` first; an exporter export is no command"
    assert replace_commands(result, NOX) == (
        "run `nox -s export -- net` first; an exporter export is no command"
    )
    assert replace_commands(result, DEFAULT_COMMAND) == result


@pytest.mark.parametrize(
    "settings",
    ["", "[tool", "[tool.exporter]\ncommand = 3", "[tool.exporter]\ncommand = 'x'", "tool = 1"],
)
def test_invalid_settings_give_the_default_command(tmp_path: Path, settings: str) -> None:
    assert read_command(tmp_path) == DEFAULT_COMMAND
    (tmp_path / "pyproject.toml").write_text(settings)
    assert read_command(tmp_path) == DEFAULT_COMMAND


@pytest.mark.parametrize(("settings", "typed"), [("", "exporter export"), (NOX, "nox -s export")])
def test_the_terminal_prints_the_commands_of_the_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, typed: str
) -> None:
    text = f"[tool.exporter]\ncommand = '{settings}'\n" if settings else ""
    manifest = f"format = 1\n[models.net]\n{ENTRY}"
    make_project(tmp_path, {"pyproject.toml": text, "manifests/net.toml": manifest})
    assert run(["report", "--root", str(tmp_path)]) == 5
    assert f"no results yet; run `{typed}` first" in capsys.readouterr().err
