"""Files that another person can have written are read by `exporter/core/files.py`.

Its functions open no pipe and no device, and have a limit of size. `Path.read_bytes` of a link to
`/dev/zero`, which git stores, reads until the memory ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "exporter"
#: What opens a file without a limit of size.
READERS = {"read_bytes", "read_text", "open"}
#: The modules that may, and what they open.
ALLOWED = {
    "core/files.py": "the reader itself, and new files",
    "core/control_group.py": "the system",
    "core/import_object.py": "the import of a module",
    "core/text.py": "the metadata of this package",
    "cache/installed_files.py": "the metadata of packages",
    "cache/states.py": "the metadata of packages",
    "pipeline/required_packages.py": "the metadata of packages",
    "processes/child_call.py": "a private folder of the call",
    "processes/fork_server_client.py": "a log that is written",
    "processes/lifetime.py": "the system",
    "runtimes/drivers/driver.py": "the system",
    "commands/verify/client.py": "the system",
    "commands/inspection_command.py": "documents of this package",
    "report/site.py": "documents of this package",
    "commands/repro/repro.py": "a module of this package",
    "commands/repro/child.py": "a new folder",
    "commands/publish/child/proof.py": "new files",
    "commands/recording/child/call_description.py": "new files",
    "cli/entry_point.py": "the null device",
    "cli/output/github.py": "the summary of a step, to which it appends",
    "cluster/host_run.py": "a private folder of the host",
    "cluster/archives.py": "archives in private folders",
    "store/store_files.py": "a new file",
    "gate/review_hosts.py": "the reply of a host, with a limit",
    "worker/__main__.py": "the job of the parent",
    "worker/fork_server.py": "a log that is written",
    "worker/dependencies/access_tracer.py": "the system",
    "worker/dependencies/child_folders.py": "the system",
    "worker/process/landlock.py": "the system",
    "worker/process/fork_call.py": "the null device",
    "worker/process/setup.py": "the system, and a log that is written",
    "worker/model/mapped_weights.py": "the system",
    "worker/export/write_onnx.py": "a new file",
    "worker/callers/samples.py": "a new file of the job",
    "worker/callers/preprocessing.py": "a picture, which the caller may read",
    "worker/callers/results.py": "new files of the job",
    "worker/diagnosis/remedies.py": "samples of this job",
    "worker/diagnosis/fault_analysis.py": "sessions of a runtime",
    "worker/inputs/data_files.py": "a picture, which the worker may read",
}


def list_reads(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in READERS
            if is_method or ast.unparse(node.func) == "open":
                yield ast.unparse(node)


def test_files_of_others_are_read_with_a_limit() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): reads
        for path in PACKAGE.rglob("*.py")
        if (reads := [*list_reads(path.read_text("utf-8"))])
    }
    others = {name: reads for name, reads in found.items() if name not in ALLOWED}
    assert not others, "read them by `read_regular_file`, or add the module with a reason"
    assert found.keys() == ALLOWED.keys()


def test_the_search_finds_each_way() -> None:
    for text in ("path.read_bytes()", "Path('a').read_text()", "open('a')", "path.open('rb')"):
        assert [*list_reads(f"x = {text}")] == [text]
    assert not [*list_reads("read_regular_file(path, 3)")]
