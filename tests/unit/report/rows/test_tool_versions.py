"""The table of tools has a column for each toolchain."""

from __future__ import annotations

from exporter.report.rows.matrix import build_tool_table
from tests.unit.factory import make_record, make_run

TOOLS = {"onnxscript": "0.7.2", "platform": "linux x86_64", "torch": "2.13.0"}
PARTS = {
    "tool.onnxscript": "0.6.2 0123456789ab",
    "tool.platform": "linux x86_64",
    "tool.numpy of ort117": "1.26.4",
    "entry": "1",
}


def test_each_toolchain_has_a_column() -> None:
    table = build_tool_table(
        make_run(
            make_record("net/18/cpu", fingerprint={"tool.onnxscript": "0.7.2 0123456789ab"}),
            make_record("net/18/cpu@old", fingerprint=PARTS),
            tools=TOOLS,
        )
    )
    assert table["toolchains"] == ("old",)
    assert table["rows"] == (
        ("onnxscript", "0.7.2", "0.6.2"),
        ("platform", "linux x86_64", "linux x86_64"),
        ("torch", "2.13.0", "2.13.0"),
    )


def test_a_toolchain_without_results_has_no_column() -> None:
    record = make_record("net/18/cpu@old", "unavailable", fingerprint={"entry": "1"})
    table = build_tool_table(make_run(record, tools=TOOLS))
    assert (table["toolchains"], table["rows"][0]) == ((), ("onnxscript", "0.7.2"))
