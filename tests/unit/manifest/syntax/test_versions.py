"""Versions of packages: ranges of torch and releases of ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.commands.explain import explain_cell
from exporter.core.errors import ExporterError
from exporter.manifest import load_layers
from exporter.manifest.syntax.values import (
    FIRST_OPSET,
    LAST_OPSET,
    check_version_range,
    find_lowest_release,
    find_pinned_release,
    format_opsets,
    is_in_range,
    parse_condition,
    parse_opsets,
)
from tests.unit.manifest.projects import ENTRY, load_model, make_project

ENVIRONMENTS = """
[tool.exporter.environments.old]
requirements = ["numpy<2", "onnxruntime==1.17.3"]

[tool.exporter.devices.ort117]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "old"
"""


def test_the_lowest_release_counts() -> None:
    assert find_lowest_release(()) is None
    assert find_lowest_release(("onnxruntime>=1.17", "onnxruntime >= 1.9.2")) == (1, 9)


@pytest.mark.parametrize(
    ("requirement", "release"),
    [
        ("onnxruntime==1.17.3", (1, 17)),
        ("onnxruntime == 1.17.*", (1, 17)),
        ("onnxruntime~=1.17.1", (1, 17)),
        ("onnxruntime-gpu==1.20.0", (1, 20)),
        ("onnxruntime~=1.17", None),  # allows 1.18
        ("onnxruntime>=1.17", None),
        ("onnxruntime-extensions==0.15", None),
        ("onnxruntime", None),
        ("numpy==1.17", None),
    ],
)
def test_only_a_fixed_version_pins_a_release(
    requirement: str, release: tuple[int, int] | None
) -> None:
    assert find_pinned_release(("pip==1", requirement)) == release


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("openvino>=2024.1", 'expected a release of ONNX Runtime such as "onnxruntime>=1.17"'),
        ("onnxruntime==1.17", "expected a release of ONNX Runtime such as"),
        ("onnxruntime>=1", "expected a release of ONNX Runtime such as"),
        ("onnxruntime>=0.0", "expected a release of ONNX Runtime from 0.1 on"),
    ],
)
def test_other_consumers_have_a_message(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(ExporterError) as raised:
        load_model(tmp_path, f'consumers = ["{value}"]')
    assert f"manifests/net.toml:7: models.net.consumers[0]: {message}" in str(raised.value)


@pytest.mark.parametrize(
    ("consumers", "devices"),
    [
        ('["onnxruntime>=1.17"]', ("cpu", "ort117")),
        ('["onnxruntime>=1.16"]', ("cpu",)),
        ("[]", ("cpu",)),
    ],
)
def test_the_device_of_the_promised_release_runs_the_file(
    tmp_path: Path, consumers: str, devices: tuple[str, ...]
) -> None:
    text = f"format = 1\n[models.net]\n{ENTRY}consumers = {consumers}\n"
    files = {"pyproject.toml": ENVIRONMENTS, "manifests/net.toml": text}
    root = make_project(tmp_path, files)
    loaded = load_layers(root)
    spec = loaded.manifest.find_model("net")
    assert spec.devices == devices
    rows = explain_cell(loaded.layers["net"], spec, 18, "cpu")
    shown = {row.origin: row.value for row in rows if row.key == "devices"}
    assert '["cpu"]' in shown.values()
    assert shown.get("computed: consumers", "[]") == ('["ort117"]' if len(devices) > 1 else "[]")


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("", "2.13.0", True),
        ("", "", True),
        ("<2.14", "2.13.0+cpu", True),
        ("<2.14", "2.14.1", False),
        ("<2.14", "2.9.0", True),
        (">=2.14", "2.14.0a0+git1234", True),
        (">=2.12,<2.14", "2.13.1 0123456789ab", True),
        (">=2.12,<2.14", "2.11.0", False),
        (">2.13", "2.13.1", False),
        ("<=2.13", "2.13.1", True),
        ("==2.13", "2.13.1", True),
        ("==2.13.0", "2.13", True),
        ("!=2.13.0", "2.13.0", False),
        ("<2.14", "", False),
        ("<2.14", "missing", False),
    ],
)
def test_a_version_is_in_a_range(versions: str, version: str, expected: bool) -> None:
    assert is_in_range(version, versions) is expected


def test_a_range_is_stored_without_spaces() -> None:
    assert check_version_range(" >= 2.12 , <2.14") == ">=2.12,<2.14"


@pytest.mark.parametrize("versions", ["2.14", "", "=2.14", "<2.14,", "<two", "<2.14 >2", "==2.*"])
def test_another_text_is_no_range(versions: str) -> None:
    with pytest.raises(ValueError, match="comparisons of versions such as"):
        check_version_range(versions)


_OPSET = st.integers(FIRST_OPSET, LAST_OPSET)
_RANGE = st.tuples(_OPSET, _OPSET).map(sorted)
_NOTATION = st.one_of(
    _OPSET.map(lambda opset: (opset, {opset})),
    _OPSET.map(lambda opset: (str(opset), {opset})),
    _RANGE.map(lambda ends: (f"{ends[0]}..{ends[1]}", set(range(ends[0], ends[1] + 1)))),
)


@pytest.mark.parametrize(
    ("text", "opsets"),
    [
        (17, (17,)),
        ("17", (17,)),
        ("9..12", (9, 10, 11, 12)),
        ("9 .. 10", (9, 10)),
        ([13, "17..18"], (13, 17, 18)),
        (["12", "11..13", 12, 7], (7, 11, 12, 13)),
        ("26", (26,)),
    ],
)
def test_valid_opsets(text: object, opsets: tuple[int, ...]) -> None:
    assert parse_opsets(text) == opsets
    assert parse_condition(text) == opsets


@given(st.lists(_NOTATION, min_size=1, max_size=5))
def test_a_list_contains_all_opsets_of_its_items(items: list[tuple[object, set[int]]]) -> None:
    expected = tuple(sorted(set().union(*(opsets for _, opsets in items))))
    assert parse_opsets([text for text, _ in items]) == expected


@pytest.mark.parametrize(
    ("text", "opsets"),
    [
        ("*", range(7, 29)),
        ("<14", range(7, 14)),
        ("<=13", range(7, 14)),
        (">=18", range(18, 29)),
        ("> 24", range(25, 29)),
        (["<9", 20], (7, 8, 20)),
        ("<99", range(7, 29)),
    ],
)
def test_conditions(text: object, opsets: range) -> None:
    assert parse_condition(text) == tuple(opsets)


@pytest.mark.parametrize(
    "text",
    [
        *(6, 29, 0, -9, 9.0, True, None, 10**400),
        *("6..9", "9..29", "12..11", "", "9-11", "9..", "..9", "9...11", "x", "<14", "٩"),
        *("9..11..13", "9,10", "9" * 400),
        *([], {}, [[9]]),
    ],
)
def test_values_without_an_opset_are_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r"opset|range"):
        parse_opsets(text)


OUTSIDE = "are outside 7..28; use one of these"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([5, 99], f"opsets 5 and 99 {OUTSIDE}"),
        ("5..99", f"opsets 5 and 99 {OUTSIDE}"),
        ([99, 17, "3..5", 99], f"opsets 99, 3 and 5 {OUTSIDE}"),
        ([*range(100_001), 10**6000], f"opsets 0, 1, 2, 3, 4 and 99975 more {OUTSIDE}"),
        (
            ["30..9", 99, 10**6000],
            f'the range "30..9" is reversed; write "9..30"; opsets 99 and a huge number {OUTSIDE}',
        ),
        ([30], "opset 30 is outside 7..28; use one of these"),
        (
            ["21..9", 99],
            'the range "21..9" is reversed; write "9..21"; opset 99 is outside 7..28; use one '
            + "of these",
        ),
    ],
)
def test_all_problems_of_a_list_are_reported(text: object, message: str) -> None:
    for parse in (parse_opsets, parse_condition):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            parse(text)
        assert str(caught.value) == message


@pytest.mark.parametrize("text", ["<7", ">28", ">=29", "=9", "<", "<=x", [], "!9", "**"])
def test_conditions_without_an_opset_are_rejected(text: object) -> None:
    with pytest.raises(ValueError, match="opset"):
        parse_condition(text)


@given(st.sets(_OPSET, min_size=1))
def test_formatted_opsets_parse_to_the_same_opsets(opsets: set[int]) -> None:
    assert parse_opsets(format_opsets(opsets).split(", ")) == tuple(sorted(opsets))


@pytest.mark.parametrize(
    ("opsets", "text"),
    [([], ""), ([18], "18"), ([9, 10], "9..10"), ([13, 9, 10, 11, 9], "9..11, 13")],
)
def test_the_notation_has_ranges(opsets: list[int], text: str) -> None:
    assert format_opsets(opsets) == text
