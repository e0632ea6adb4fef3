"""Each package has a purpose, and heavy imports exist only in marked packages."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "exporter"
HEAVY = {"numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "openvino", "torch"}
#: `testing` runs in a process that has the module of a test.
HEAVY_PACKAGES = {"worker", "checks", "runtimes", "testing"}


def packages() -> list[Path]:
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def imported_modules(source: str) -> Iterator[str]:
    """Return each module that is imported, at the top or in a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_module_has_a_docstring() -> None:
    files = PACKAGE.rglob("*.py")
    assert not [name(path) for path in files if not ast.get_docstring(ast.parse(path.read_text()))]


def is_heavy(module: str) -> bool:
    """Return whether a module is a heavy library, or may import torch, onnx or numpy."""
    first, *others = module.split(".")
    is_own = first == "exporter" and bool(others)
    return first in HEAVY or (is_own and (others[0] in HEAVY_PACKAGES or "child" in others))


LIGHT = sorted(path for path in PACKAGE.rglob("*.py") if not is_heavy(name(path).replace("/", ".")))


def test_a_light_module_imports_nothing_heavy() -> None:
    assert not {
        name(path): heavy
        for path in LIGHT
        if (heavy := [each for each in imported_modules(path.read_text("utf-8")) if is_heavy(each)])
    }


def test_the_search_sees_imports_in_functions() -> None:
    source = (
        "def f():\n    from exporter.commands.publish.child import proof\n    import torch.nn\n"
    )
    assert {"exporter.commands.publish.child.proof", "torch.nn"} <= set(imported_modules(source))


def is_collected(path: PurePosixPath, config: pytest.Config) -> bool:
    """Return whether pytest collects a file if no path is on its command line."""
    is_below = any(path.is_relative_to(folder) for folder in config.getini("testpaths"))
    has_name = any(path.match(pattern) for pattern in config.getini("python_files"))
    skipped = config.getini("norecursedirs")
    return (
        is_below
        and has_name
        and not any(fnmatch(part, pattern) for part in path.parts[:-1] for pattern in skipped)
    )


def test_pytest_collects_every_file_with_tests(pytestconfig: pytest.Config) -> None:
    command = [
        "git",
        "grep",
        "--untracked",
        "-lE",
        "^( {4})?def test_",
        "--",
        "tests",
        "benchmarks",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [PurePosixPath(line) for line in result.stdout.splitlines()]
    assert len(files) > 100
    assert [str(path) for path in files if not is_collected(path, pytestconfig)] == []


@pytest.mark.parametrize(
    "path", ["tests/unit/build/test_cost.py", "tests/unit/cost_test_cases.py", "exporter/test_x.py"]
)
def test_a_file_in_a_skipped_folder_is_found(path: str, pytestconfig: pytest.Config) -> None:
    assert not is_collected(PurePosixPath(path), pytestconfig)


def test_the_site_has_each_page() -> None:
    """`nox -s docs` fails for a page that the navigation lacks."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if f": {page}\n" not in navigation} == set()


def computed_imports(source: str) -> Iterator[str]:
    """Yield each import of a module whose name is not written in the call."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            is_written = bool(node.args) and isinstance(node.args[0], ast.Constant)
            yield from [ast.unparse(node)] * (not is_written)


#: These import what a manifest, an entry point or a list of preloaded modules names.
IMPORT_BY_NAME = {
    "cli/entry_point",
    "commands/doctor/child",
    "commands/verify/child/folder_checks",
    "core/import_object",
    "processes/child_call",
    "runtimes/drivers/backend_driver",
    "runtimes/drivers/driver",
    "runtimes/drivers/onnxruntime_driver",
    "runtimes/drivers/server",
    "runtimes/runtime_registry",
    "worker/dependencies/opened_files",
    "worker/fork_server",
    "worker/model/generation",
    "worker/torch_private/guards",
}


def test_an_import_names_its_module() -> None:
    assert {
        name(path).partition("/")[2]
        for path in PACKAGE.rglob("*.py")
        if [*computed_imports(path.read_text("utf-8"))]
    } == IMPORT_BY_NAME


#: Files of projects of users and of other packages, in comments.
EXAMPLES = {"FILE.py", "ID.py", "NAME_driver.py", "bert.py", "file.py", "generate.py", "loops.py"}
EXAMPLES |= {"models.py", "net.py", "sitecustomize.py", "test_pytorch_onnx_onnxruntime.py"}
#: `rules/` in backticks, `gate/finding.py` or `repro.py.jinja` anywhere.
FILE_NAME = re.compile(r"(?<=`)(?:[\w-]+/)+(?=`)|(?<![\w./-])(?:[\w-]+/)*[\w-]+\.py(?:\.jinja)?\b")
#: `exporter.gate.finding`, also with the name of a function; not `[tool.exporter.gate]`.
MODULE_NAME = re.compile(r"(?<![\w./])(?:exporter|tests|benchmarks)(?:\.[a-z_]+)+\b(?!\.json)")


def docstrings_and_comments(source: str) -> Iterator[str]:
    """Return each docstring and each comment of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def find_lost_names(text: str, files: str) -> list[str]:
    """Return the names of files and modules in a text that are not in the list `/FILE/\\n`."""
    names = {name for name in FILE_NAME.findall(text) if name.rpartition("/")[2] not in EXAMPLES}
    lost = {name for name in names if f"/{name.rstrip('/')}/" not in files}
    for module in MODULE_NAME.findall(text):
        paths = (module.replace(".", "/"), module.rpartition(".")[0].replace(".", "/"))
        ends = (".py/", "/__init__.py/")
        if not any(f"/{path}{end}" in files for path in paths for end in ends):
            lost.add(module)
    return sorted(lost)


def test_comments_and_the_architecture_name_files_that_exist() -> None:
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = result.stdout.splitlines()
    files = "".join(f"/{name}/\n" for name in names)
    pages = {"docs/architecture.md", "docs/style.md", "CONTRIBUTING.md"}
    texts = {each: (ROOT / each).read_text("utf-8") for each in pages}
    for name in names:
        if name.endswith(".py") and name.startswith(("exporter/", "tests/", "benchmarks/")):
            # Most sources have no such name at all, also not in a value.
            source = (ROOT / name).read_text("utf-8")
            if find_lost_names(source, files):
                texts[name] = "\n".join(docstrings_and_comments(source))
        elif name.startswith("templates/"):
            comments = re.findall(r"\{#.*?#\}", (ROOT / name).read_text("utf-8"), re.DOTALL)
            texts[name] = "\n".join(comments)
    lost = {key: names for key, text in texts.items() if (names := find_lost_names(text, files))}
    assert not lost, "name the file that has it now"


def test_the_search_sees_docstrings_and_comments() -> None:
    source = '"""Module."""\nX = 1  # a comment\ndef f():\n    """Function."""\n    return "a"\n'
    assert list(filter(None, docstrings_and_comments(source))) == [
        "Module.",
        "Function.",
        "# a comment",
    ]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("see `gate/finding.py`, `finding.py:8` and exporter.gate.finding.read_change", []),
        ("see gate/findings.py in `gates/`", ["gate/findings.py", "gates/"]),
        ("`net.py` of a project, and [tool.exporter.gates.net]", []),
        ("see exporter.gates.finding", ["exporter.gates.finding"]),
    ],
)
def test_a_lost_file_is_found(text: str, lost: list[str]) -> None:
    assert find_lost_names(text, "/exporter/gate/finding.py/\n") == lost


def find_at_import(module: str, seen: dict[str, str]) -> None:
    """Add each module that the import of one imports, with the module that requires it."""
    parents = [module.rpartition(".")[0]] if "." in module else []
    location = ROOT.joinpath(*module.split("."))
    path = location / "__init__.py" if location.is_dir() else location.with_suffix(".py")
    if not path.is_file():
        return
    statements = [*ast.parse(path.read_text("utf-8")).body]
    top = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    for each in (*parents, *imported_modules(ast.unparse(ast.Module(top, [])))):
        if each not in seen:
            seen[each] = module
            find_at_import(each, seen)


def test_the_import_of_torch_is_found() -> None:
    seen: dict[str, str] = {}
    find_at_import("exporter.worker.torch_private.internals", seen)
    assert seen["torch"] == "exporter.worker.torch_private.internals"


def test_the_unit_tests_import_no_torch() -> None:
    # `nox -s unit` has an environment without it, which a full run does not show.
    seen: dict[str, str] = {}
    for path in sorted((ROOT / "tests/unit").rglob("test_*.py")):
        find_at_import(name(path).replace("/", "."), seen)
    assert seen.get("torch") is None
