"""The edits that cause a finding, from differences of files."""

from __future__ import annotations

from exporter.gate.finding import find_cause, read_change
from exporter.records.record import Source
from tests.unit.factory import make_manifest, make_record, make_spec

TOOLS = {"torch": "2.13.0"}
DIFF = """diff --git a/models/vision.py b/models/vision.py
--- a/models/vision.py
+++ b/models/vision.py
@@ -3,4 +3,4 @@ class Other(nn.Module):
     a
-    b
+    c
     d
@@ -30,4 +30,5 @@ class AlexNet(nn.Module):
     e
+    f
+    g
     h
-    i
     j
"""
MANIFEST = make_manifest(make_spec(line=3), make_spec("other", line=9))
SOURCES = (Source(file="models/vision.py", state=""), Source(file="models/*.py", state=""))


def explain(lines: tuple[str, ...] = (), tools: dict[str, str] = TOOLS, **diffs: str) -> str:
    record = make_record("alexnet/18/cpu", "fail", sources=SOURCES, lines=lines)
    files = {"source": "models/vision.py", "other": "o.py"}
    named = {files[name]: diff for name, diff in diffs.items()}
    return str(find_cause(record, MANIFEST, TOOLS, tools, named) or "")


def test_added_replaced_and_removed_lines_are_found() -> None:
    change = read_change("models/vision.py", DIFF)
    assert str(change) == "models/vision.py:4, 31-32, 34"
    assert [each.context[:9] for each in change.lines] == ["class Oth", "class Ale", "class Ale"]
    removed = read_change("a.py", "@@ -1,2 +0,0 @@\n-a\n-b\n")
    assert (str(removed), removed.lines) == ("a.py", ())


def test_the_lines_of_the_class_or_of_the_failure_are_first() -> None:
    assert explain(source=DIFF) == "the model changed: models/vision.py:31-32, 34, 4"
    text = explain(("models/vision.py:4",), source=DIFF)
    assert text == "the model changed: models/vision.py:4, 31-32, 34"


def test_a_file_of_another_model_is_no_cause() -> None:
    assert explain(other=DIFF) == ""


def test_tools_and_a_model_that_both_changed_are_both_named() -> None:
    newer = {"torch": "2.14.0", "numpy": "2.0"}
    assert explain(tools=newer) == "the tools changed: numpy none to 2.0, torch 2.13.0 to 2.14.0"
    assert " and the tools (numpy none to 2.0" in explain(tools=newer, source=DIFF)
