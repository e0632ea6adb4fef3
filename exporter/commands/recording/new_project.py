"""The command `init`: the files of a new project, beside the files that exist."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.commands.recording.file_changes import FileChange, read_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import require_inside_checkout
from exporter.core.text import find_origin, format_requirement, join_names
from exporter.core.toml_table import SETTINGS_FILE, find_settings, read_toml_table, read_toml_text
from exporter.report.pages.templates import render_script

#: PyTorch for the CPU; PyPI has the build for CUDA, which is several GB larger.
_CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
_GITHUB = re.compile(r"(?:ssh://git@|https://)github\.com/(.+?)(?:\.git)?/?")
_UNKNOWN_ACTION = "OWNER/onnx-exporter-matrix@COMMIT"
_UNKNOWN_NOTE = "this installation has no commit of GitHub; replace OWNER and COMMIT"
_SETTINGS = """\
[tool.exporter]
manifests = "manifests"  # folder of the TOML files
reports = "reports"      # folder of the tables and the baseline; commit it
build = "build"          # folder of the ONNX files; git ignores it
"""
#: The number of names that a note lists.
_LISTED = 4
#: The list of the projects in a workflow of several, and its items.
_FOLDERS = re.compile(r"\s+(- )?(folder|FOLDER):\s*(#.*)?")
_ITEM = re.compile(r"(\s+)- (\S+)\s*(#.*)?")
_IGNORED = ("build/",)
#: The folders and the modules beside a package that setuptools never takes for a part of it.
_NO_PACKAGES = re.compile(
    "ci|bin|debian|docs?|documentation|manpages|news|newsfragments|changelog|tests?|unit_tests?|"
    "examples?|scripts|tools|utils?|python|build|benchmarks?|exercises?|htmlcov|manifests|reports"
)
_NO_MODULES = re.compile(
    f"{_NO_PACKAGES.pattern}|setup|conftest|toxfile|noxfile|pavement|dodo|tasks|fabfile|manage"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProject:
    """The changes that make a folder a project, and the files that cannot be changed."""

    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]


def prepare_project(root: Path, *, ci: str = "", pre_commit: bool = False) -> NewProject:
    """Return the changes that a folder needs; a second call returns none.

    Raises:
        ExporterError: MANIFEST if pyproject.toml is invalid, ENVIRONMENT if a file is unreadable.
    """
    settings, packages_note = _add_settings(root)
    table = read_toml_text(settings.text).table
    setting = (find_settings(table)[0] or {}).get("manifests", "manifests")
    # Another command names a value that is wrong.
    folders = [each for each in (setting if isinstance(setting, list) else [setting]) if each]
    folders = [each for each in folders if isinstance(each, str)] or ["manifests"]
    packages = _list_packages(root, table)
    changes, notes = [settings], [packages_note] if packages_note else []
    for each in folders:
        require_inside_checkout(root / each)
    if not any(path for each in folders for path in (root / each).rglob("*.toml")):
        folder = root / folders[0]
        for path in (folder / "example.toml", folder / "models" / "example.py"):
            before = read_text(path)
            text = before or _render(path.name)
            changes.append(FileChange(path=path, text=text, before=before))
    path = root / ".gitignore"
    before = read_text(path)
    known = {line.strip().strip("/") for line in (before or "").splitlines()}
    missing = [line for line in _IGNORED if line.strip("/") not in known]
    end = "\n" if before and missing and not before.endswith("\n") else ""
    text = f"{before or ''}{end}" + "".join(f"{line}\n" for line in missing)
    changes.append(FileChange(path=path, text=text, before=before))
    noxfile = root / "noxfile.py"
    if (before := read_text(noxfile)) is not None:
        text, note = _add_session(before, packages=packages)
        changes.append(FileChange(path=noxfile, text=text, before=before))
        if note:
            notes.append(f"noxfile.py: {note}")
    if ci:
        add = _add_github if ci == "github" else _add_gitlab
        change, note = add(root, packages=packages)
        changes.append(change)
        if note:
            notes.append(f"{change.path.name}: {note}")
    if pre_commit:
        path = root / ".pre-commit-config.yaml"
        before = read_text(path)
        text, note = _add_hook(before)
        changes.append(FileChange(path=path, text=text, before=before))
        if note:
            notes.append(f"{path.name}: {note}")
    return NewProject(changes=tuple(changes), notes=tuple(notes))


def _list_packages(root: Path, table: dict[str, Any]) -> str:
    """Return the arguments of pip for the packages of the models."""
    if "project" in table:
        return "-e ."
    return "-r requirements.txt" if (root / "requirements.txt").is_file() else ""


def _render(name: str, **values: str) -> str:
    """Return the text of a new file from `templates/new/`."""
    return render_script(f"new/{name}", **values).rstrip() + "\n"


def _find_top(root: Path) -> tuple[Path, str]:
    """Return the root of the repository, and the project's folder in it; "" if it is the root."""
    top = next((each for each in (root, *root.parents) if (each / ".git").exists()), root)
    return top, root.relative_to(top).as_posix() if top != root else ""


def _add_gitlab(root: Path, *, packages: str) -> tuple[FileChange, str]:
    """Return the change of `.gitlab-ci.yml` at the root of the repository, and what is to do."""
    top, folder = _find_top(root)
    path = top / ".gitlab-ci.yml"
    before = read_text(path)
    if before is not None:
        text, problem = _add_folder(before, folder) if folder else (before, "")
        note = "exists; `exporter guide gitlab` has the jobs to add"
        note += f", with `cd {folder}` and the folder in each of their paths" if folder else ""
        is_complete = "exporter gate" in before and not problem
        return FileChange(path=path, text=text, before=before), "" if is_complete else note
    requirement = format_requirement("export", is_shared=True)
    is_unknown = find_origin()[0].startswith("file:")
    requirement += f" @ git+https://github.com/{_UNKNOWN_ACTION}" if is_unknown else ""
    values = {
        "packages": f"'{requirement}' {packages}".strip(),
        "index": _CPU_INDEX,
        "folder": folder,
        "prefix": "$FOLDER/" if folder else "",
        "part": "$PART/3" if folder else "$CI_NODE_INDEX/$CI_NODE_TOTAL",
        "index_variable": "$PART" if folder else "$CI_NODE_INDEX",
    }
    text = _render("gitlab-ci.yml", **values)
    return FileChange(path=path, text=text, before=None), _UNKNOWN_NOTE if is_unknown else ""


def _add_github(root: Path, *, packages: str) -> tuple[FileChange, str]:
    """Return the change of the workflow at the root of the repository, and what is to do by hand.

    In a folder of the repository, the project is one of several in a matrix.
    """
    top, folder = _find_top(root)
    path = top / ".github" / "workflows" / "onnx.yml"
    before = read_text(path)
    if before is not None:
        text, note = _add_folder(before, folder) if folder else (before, "")
        if not note and text != before and packages and packages not in before:
            note = f"{folder} needs `packages: {packages}`; write a job of its own for it"
        return FileChange(path=path, text=text, before=before), note
    url, commit = find_origin()
    address = _GITHUB.fullmatch(url)
    action = f"{address[1]}@{commit}" if address and commit else _UNKNOWN_ACTION
    packages = f"{packages} {_CPU_INDEX}".strip()
    text = _render(path.name, packages=packages, action=action, folder=folder)
    note = _UNKNOWN_NOTE if action == _UNKNOWN_ACTION else ""
    return FileChange(path=path, text=text, before=before), note


def _add_folder(text: str, folder: str) -> tuple[str, str]:
    """Return the jobs with a folder in the matrix of each, or without it and the reason."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if _FOLDERS.fullmatch(line)]
    if not starts:
        return (
            text,
            f"has no list `folder` in a matrix; pass `folder: {folder}` in a job of its own",
        )
    for start in reversed(starts):
        end = next((n for n in range(start + 1, len(lines)) if not _ITEM.fullmatch(lines[n])), -1)
        end = len(lines) if end < 0 else end
        items = [match[2] for line in lines[start + 1 : end] if (match := _ITEM.fullmatch(line))]
        if not items:
            return text, "its list `folder` is empty; add this folder"
        if folder not in items:
            indent = lines[start + 1].partition("-")[0]
            lines.insert(end, f"{indent}- {folder}")
    return text if lines == text.splitlines() else "\n".join((*lines, "")), ""


def _add_settings(root: Path) -> tuple[FileChange, str]:
    """Return the change of pyproject.toml, and what is to do by hand."""
    path = root / SETTINGS_FILE
    before = read_text(path)
    if before is None:
        return FileChange(path=path, text=_SETTINGS), ""
    content = read_toml_table(path)
    if content.problem:
        line = f":{content.line}" if content.line else ""
        message = f"{SETTINGS_FILE}{line}: {content.problem}; correct the file first"
        raise ExporterError(ExitCode.MANIFEST, message)
    settings, wrong_keys = find_settings(content.table)
    if wrong_keys:
        message = f"{SETTINGS_FILE}: {'.'.join(wrong_keys)} is no table; rename it"
        raise ExporterError(ExitCode.MANIFEST, message)
    if settings is not None:
        return FileChange(path=path, text=before, before=before), ""
    tool = content.table.get("tool", {})
    packages, note = _name_packages(root, content.table)
    text = f"{before.rstrip()}\n\n{packages}{_SETTINGS}".lstrip()
    added = read_toml_text(packages + _SETTINGS).table["tool"]
    if packages:
        added["setuptools"] = {**tool.get("setuptools", {}), **added["setuptools"]}
    extended = {**content.table, "tool": {**tool, **added}}
    if read_toml_text(text).table != extended:  # `tool = { ... }` accepts no header
        message = (
            f"{SETTINGS_FILE}: [tool.exporter] cannot be appended; write `tool` as [tool.NAME]"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    return FileChange(path=path, text=text, before=before), note


def _name_packages(root: Path, table: dict[str, Any]) -> tuple[str, str]:
    """Return lines that name the package for setuptools, or what is to do by hand.

    Without names, setuptools takes each folder for a package, and installs none if they are
    several. The project has two more now: `manifests` and `reports`.
    """
    system, tool = (table.get(key, {}) for key in ("build-system", "tool"))
    tables = (system, tool, settings := tool.get("setuptools", {}))
    backend = str(system.get("build-backend", "setuptools"))
    is_named = "packages" in settings or "py-modules" in settings
    others = [name for name in ("src", "setup.py", "setup.cfg") if (root / name).exists()]
    is_table = all(isinstance(each, dict) for each in tables)
    if "project" not in table or not is_table or is_named or others:
        return "", ""
    if not backend.startswith("setuptools"):
        return "", ""
    folders = (each.name for each in root.iterdir() if each.is_dir())
    packages = _list_identifiers(folders, _NO_PACKAGES)
    modules = _list_identifiers((each.stem for each in root.glob("*.py")), _NO_MODULES)
    names = packages or modules
    if len(packages) == 1:
        header, line = "[tool.setuptools.packages.find]", f'include = ["{packages[0]}*"]'
    elif len(names) < 2 and not settings:
        header, line = "[tool.setuptools]", f"py-modules = {json.dumps(modules)}"
    else:
        text = f"setuptools finds several: {join_names(names, _LISTED)}" if names else ""
        note = f"pyproject.toml: `pip install -e .` fails, because {text}; name yours in "
        return "", f"{note}[tool.setuptools] as `packages` or `py-modules`" if names else ""
    return f"{header}\n{line}  # not manifests and reports\n\n", ""


def _list_identifiers(names: Iterable[str], others: re.Pattern[str]) -> list[str]:
    return sorted(each for each in names if each.isidentifier() and not others.fullmatch(each))


def _add_session(text: str, *, packages: str) -> tuple[str, str]:
    """Return the text of noxfile.py with a session, or without it and the reason."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return text, f"is not valid Python: {error}; no session is added"
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "onnx" in names:
        return text, ""
    imports = (node for node in tree.body if isinstance(node, ast.Import))
    if not any(alias.asname is None and alias.name == "nox" for i in imports for alias in i.names):
        return text, "has no `import nox`; no session is added"
    arguments = [format_requirement("export", is_shared=True), *packages.split()]
    quoted = ", ".join(f'"{each}"' for each in arguments)
    session = _render("session.py", packages=quoted)
    return f"{text.rstrip()}\n\n\n{session}", ""


def _add_hook(text: str | None) -> tuple[str, str]:
    """Return the configuration of pre-commit with the hook, and why it has none."""
    hook = _render("hook.yml")
    if text is None or not text.strip():
        return f"repos:\n{hook}", ""
    if "exporter-check" in text:
        return text, ""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if re.fullmatch(r"repos:\s*(#.*)?", line)), -1)
    item = next((line for line in lines[start + 1 :] if re.match(r" *- ", line)), None)
    if start < 0 or item is None:
        return text, "has no list `repos`; no hook is added"
    indent = " " * (len(item) - len(item.lstrip()))
    others = (n for n in range(start + 1, len(lines)) if re.match(r"[^\s#-]", lines[n]))
    end = next(others, len(lines))
    items = [f"{indent}{line}" for line in hook.splitlines()]
    return "\n".join((*lines[:end], *items, *lines[end:], "")), ""


def list_actions(root: Path, new_project: NewProject) -> Iterator[tuple[str, str]]:
    for change in new_project.changes:
        yield change.action, os.path.relpath(change.path, root)
