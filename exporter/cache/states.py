"""Read the states of the files, packages, tools and variables that a result depends on.

Each export without changes compares them first, so this module imports neither pydantic nor the
manifest, which take longer than the comparison.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from exporter.cache.code_blocks import BLOCKS, read_current_blocks
from exporter.cache.installed_files import (
    have_installed_files_changed,
    list_wheel_files,
    read_record,
    stamp_folders,
)
from exporter.core.files import TEXT_LIMIT, hash_file, read_regular_file
from exporter.core.import_object import SHADOWS, find_package_folders
from exporter.core.system import describe_platform
from exporter.core.text import DISTRIBUTION
from exporter.processes.worker_variables import TORCH_PRIVATE, digest_variables, hash_variable

#: The name of the search path among the packages of a record.
SEARCH_PATH = "sys.path"
#: The variable of the workers of a host with the project of the client.
CLIENT_ROOT = "EXPORTER_CLIENT_ROOT"
#: The state of a search path that has only folders of packages.
NO_FOLDERS = "no folders"
#: The folder with this tool, which the fingerprint contains.
_OWN_FOLDER = str(Path(__file__).resolve().parents[2])
#: The path before the code of a model can change it, without the folder of the script.
_FIRST_PATH = tuple(sys.path if sys.flags.safe_path else sys.path[1:])


def read_search_path(root: Path, variable: str, client_root: str = "") -> str:
    """Return the folders in their order, those of the repository relative to the project.

    So checkouts at other places have the same state. The project's folder is always searched. Its
    place counts only if it contains a module that replaces one of Python or of a package. On a
    host, the folders of the client's project do not count whose copies are searched before.
    """
    needless = {_OWN_FOLDER}
    if not any(_find_modules(root, (SHADOWS,))):
        needless.add(os.path.realpath(root))
    folders = [
        each for each in map(os.path.realpath, _list_folders(variable)) if Path(each).exists()
    ]
    names = [make_portable(each, root) for each in dict.fromkeys(folders) if each not in needless]
    inner = (each for each in names if client_root and not each.startswith(("/", "..")))
    linked = {os.path.normpath(f"{client_root}/{each}") for each in inner}
    return os.pathsep.join(each for each in names if each not in linked) or NO_FOLDERS


def make_portable(folder_text: str, root: Path) -> str:
    """Resolve the links of a folder; inside the repository, the path begins at the project."""
    folder_text, root = os.path.realpath(folder_text), root.resolve()
    is_own = f"{folder_text}/".startswith(f"{find_checkout(str(root))}/")
    return os.path.relpath(folder_text, root) if is_own else folder_text


def find_checkout(root: str) -> str:
    """Return the folder of the repository of a project, or the parent of the project."""
    folders = (Path(root), *Path(root).parents)
    checkout = next((folder for folder in folders if (folder / ".git").exists()), None)
    return str(Path(root).parent if checkout in (None, folders[0]) else checkout)


def list_package_folders() -> tuple[str, ...]:
    """Return the folders of installed packages, also those of an environment below this one."""
    return find_package_folders(_FIRST_PATH)


@cache
def list_metadata_folders() -> tuple[str, ...]:
    """Return the folders with metadata of distributions, those of installed packages first.

    Without this order, a worker would find the metadata that a build left in the project.
    """
    return tuple(sorted(_FIRST_PATH, key=lambda folder: not _is_installed(folder)))


def _list_folders(variable: str) -> Iterator[str]:
    """Yield the folders that Python adds to its path at the start of a worker."""
    yield from filter(None, variable.split(os.pathsep))
    for folder in list_package_folders():
        with suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(folder))
            for name in names:
                if name.endswith(".pth") and not name.startswith("."):
                    lines = _read_pth_file(folder, name)
                    yield from (line for line in lines if not _is_installed(line))


def _read_pth_file(folder_text: str, name: str) -> Iterator[str]:
    """Yield the folders in a `.pth` file; its lines with code belong to an installed package."""
    content = read_regular_file(Path(folder_text, name), TEXT_LIMIT, may_be_link=True)
    text = content.decode(errors="surrogateescape")
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith(("#", "import ", "import\t")):
            yield str(Path(folder_text, line))


def _is_installed(folder_text: str) -> bool:
    """Return True for a folder of Python or of installed packages."""
    standard = (sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))
    folders = (*standard, *list_package_folders())
    path = f"{os.path.realpath(folder_text)}/"
    return any(path.startswith(f"{os.path.realpath(each)}/") for each in folders)


#: Distributions that can change a file or a verdict.
DISTRIBUTIONS = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
#: The prefixes of a module and of a distribution that a model searched for.
MODULE_PREFIX, VERSION_PREFIX = "module ", "version "
#: Modules that each worker may search for: those of Python, also at its start, and those that torch
#: and other packages of workers use if they exist.
COMMON_MODULES = sys.stdlib_module_names | {
    *("sitecustomize", "usercustomize"),
    *("colorama", "cuda", "dill", "filelock", "flint", "fx2trt_oss", "gmpy", "gmpy2", "google"),
    *("hypothesis", "monkeytype", "mpmath", "networkx", "onnx_ir", "onnx_tf", "onnxruntime"),
    *("onnxscript", "opt_einsum", "packaging", "pandas", "pydot", "pynvml", "redis"),
    *("safetensors", "sklearn", "sympy", "tabulate", "tensorflow", "tensorrt", "torch"),
    *("torch2trt", "torchcomms", "torchdistx", "torchgen", "torchvision", "tqdm", "tree"),
    *("triton", "tvm", "xarray", "z3"),
}
#: The prefix of a tool among the parts.
TOOL_PREFIX = "tool."
#: The last component of a source that represents the list of modules in a folder. `*.py?a,b`
#: represents those of them that imports searched for.
LISTING = "*.py"
#: The first word of the state of such a source, before the modules that exist.
_MODULES_PREFIX = "modules "
#: The last component of a source that represents the list of all names in a folder.
ALL_FILES = "*"
#: The suffixes of importable files.
MODULES = (".py", ".so", ".pyd")
#: The suffixes of a name that an import searches for, in the order of Python's finders.
_IMPORT_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
#: The states of a source that is absent, and of one that is a folder.
MISSING, FOLDER = "missing", "folder"
#: A folder that Python creates.
_PYCACHE = "__pycache__"


def read_variables(patterns: Iterable[str]) -> str:
    """Return a hash of the environment variables that results depend on."""
    return digest_variables(os.environ, patterns)


def read_variable_state(name: str) -> str:
    """Return the state of a variable that a model read: its hash, or `missing`."""
    return hash_variable(name, os.environ.get(name))


@cache
def read_tool_versions() -> dict[str, str]:
    """Return the version of each tool without an import, or `missing`."""
    tools = {"python": platform.python_version(), "platform": describe_platform().lower()}
    for name in ("exporter", *DISTRIBUTIONS):
        tools[name] = _read_version(DISTRIBUTION if name == "exporter" else name)
    return tools


def read_package_state(name: str, overlay: str = "", root: Path | None = None) -> str:
    """Return the version of an installed distribution and a hash of its list of files.

    The hash distinguishes two builds of one version, such as torch for the CPU and for CUDA, and
    files that were edited since. It is the same in every environment with the same wheel. The state
    of an editable installation in a project is its location, because records have the states of its
    files. The overlay is the package folder of an environment that adds to the current one.
    """
    state, editable = read_distribution(name, overlay)
    if editable and root is not None:
        location = make_portable(editable, root)
        if not Path(location).is_absolute():
            return f"editable:{location}"
    return state


@cache
def read_distribution(name: str, overlay: str) -> tuple[str, str]:
    """Return the version with the hash, and the location of an editable installation or ""."""
    path = list_searched_folders(overlay)
    stamp_folders(path)
    for installed in distributions(name=name, path=path):
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        is_editable = origin.get("dir_info", {}).get("editable")
        location = unquote(urlsplit(origin["url"]).path) if is_editable else ""
        return f"{installed.version} {hash_text(list_wheel_files(installed)[0])[:12]}", location
    return "", ""


def is_distribution(name: str) -> bool:
    """Return True if an item of `Record.packages` is the state of an installed distribution."""
    return name != SEARCH_PATH and "/" not in name and not name.startswith(MODULE_PREFIX)


def list_searched_folders(overlay: str = "") -> list[str]:
    """Return the folders in which distributions are searched, that of an environment first."""
    return [*filter(None, (overlay,)), *list_metadata_folders()]


def find_edit(name: str, overlay: str) -> str:
    """Return the first file of a distribution that was edited since its installation, or ""."""
    matches = distributions(name=name, path=list_searched_folders(overlay))
    return next((list_wheel_files(each)[1] for each in matches), "")


def read_loaded_state(name: str, root: Path, overlay: str = "") -> str:
    """Return the current state of an item of `Record.packages`.

    The name is a distribution, the path of a file outside of the project, `module NAME` or
    `version NAME` of a searched module or distribution, or `SEARCH_PATH`.
    """
    if name.startswith(MODULE_PREFIX):
        return _read_module_state(name.removeprefix(MODULE_PREFIX), overlay)
    if name.startswith(VERSION_PREFIX):
        return _read_version_state(name.removeprefix(VERSION_PREFIX), overlay)
    if name == SEARCH_PATH:
        variable, client_root = (os.environ.get(each, "") for each in ("PYTHONPATH", CLIENT_ROOT))
        return read_search_path(root, variable, client_root)
    if "/" in name:
        return f"file {read_source_state(root / name)}"
    return read_package_state(name, overlay, root)


def split_listing(file: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the folder, the pattern and the names of a listing, or None for another source.

    A listing without names is that of all modules or files.
    """
    folder, _, last = file.rpartition("/")
    pattern, _, names = last.partition("?")
    if pattern not in (LISTING, ALL_FILES):
        return None
    return folder or ".", pattern, tuple(filter(None, names.split(",")))


def compare_modules(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the added and the removed modules of two states of a listing with names."""
    old, new = (
        set(filter(None, s.removeprefix(_MODULES_PREFIX).split(","))) for s in (before, after)
    )
    return sorted(new - old), sorted(old - new)


def _find_modules(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the file or folder that an import of each name finds in a folder."""
    entries = set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 - names only
    shadows: set[str] = set()
    if SHADOWS in names:
        shadows = {each.partition(".")[0] for each in entries} & _list_known_modules()
    for name in sorted(shadows.union(names)):
        paths = [f"{name}{suffix}" for suffix in _IMPORT_SUFFIXES if f"{name}{suffix}" in entries]
        is_folder = name in entries and (folder / name).is_dir()
        if is_folder:
            paths = [*(f"{name}/__init__{suffix}" for suffix in _IMPORT_SUFFIXES), *paths]
        # A folder without a file is a package if no other folder has one.
        default = f"{name}/" if is_folder and name in names else None
        if module := next((path for path in paths if (folder / path).is_file()), default):
            yield module


def _list_known_modules() -> frozenset[str]:
    """Return the names of the modules of Python and of installed packages."""
    folders = [folder for folder in map(Path, list_package_folders()) if folder.is_dir()]
    installed = (_list_modules(folder, folder.stat().st_mtime_ns) for folder in folders)
    return COMMON_MODULES.union(*installed)


@cache
def _list_modules(folder: Path, _changed: int) -> frozenset[str]:
    return frozenset(entry.name.partition(".")[0] for entry in os.scandir(folder))


def _read_module_state(name: str, overlay: str) -> str:
    """Return `installed` if a folder of packages contains a module with the name, or `missing`."""
    path = name.replace(".", "/")
    for folder in filter(None, (overlay, *list_package_folders())):
        stem = f"{folder}/{path}"
        if Path(stem).is_dir() or any(Path(f"{stem}{each}").is_file() for each in _IMPORT_SUFFIXES):
            return "installed"
    return MISSING


def _read_version_state(name: str, overlay: str) -> str:
    """Return the version, with the hash of the list of files unless the package is editable.

    The list of an editable package contains the path of its checkout.
    """
    state, editable = read_distribution(name, overlay)
    return (state.partition(" ")[0] if editable else state) or MISSING


def read_source_state(path: Path, earlier: str = "") -> str:
    """Return the state of a path that a job used.

    `earlier`: The state in a record. Of its blocks of code, the result has those that still exist.

    Returns:
        `link TEXT` for a symlink, `folder`, `missing`, the SHA-256 of the content or listing,
        `modules NAMES` for a listing with names, `blocks NAME=HASH,...` for a module of which only
        these blocks count, or "" if the file cannot be read.
    """
    if split_listing(str(path)):
        return hash_source(path)
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link {path.readlink()}"
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError:
        return ""
    if stat.S_ISDIR(mode):
        return FOLDER
    state = hash_source(path) if stat.S_ISREG(mode) else ""  # a pipe has no content
    return read_current_blocks(path, earlier, state) if earlier.startswith(BLOCKS) else state


def hash_source(path: Path) -> str:
    """Return the SHA-256 of a file in hex.

    The path `folder/*.py` represents the names of all modules and packages in the folder, such as
    `pkgutil` lists them, and `folder/*` represents all names. The path `folder/*.py?a,b` represents
    the modules that an import of `a` or `b` can find there: a new one can replace another one. See
    `SHADOWS` for the name `@`.

    Returns:
        The hash, or "" if the file or folder cannot be read.
    """
    try:
        if path.name.startswith(f"{LISTING}?"):
            names = path.name.partition("?")[2].split(",")
            return _MODULES_PREFIX + ",".join(_find_modules(path.parent, names))
        if path.name == LISTING:
            # Python prefers a package to an extension, and an extension to a module.
            listed = (
                each.name
                for each in path.parent.iterdir()
                if each.suffix in MODULES or (each / "__init__.py").is_file()
            )
            return hash_text("\n".join(sorted(listed)))
        if path.name == ALL_FILES:
            files = (each.name for each in path.parent.iterdir() if each.name != _PYCACHE)
            return hash_text("\n".join(sorted(files)))
        state = path.stat()
        return _hash_once(path, state.st_size, state.st_ctime_ns, state.st_ino)
    except OSError:
        return ""


@cache
def _hash_once(path: Path, _size: int, _changed: int, _inode: int) -> str:
    """Return the hash of a file, read once: all records of a model refer to the same weights."""
    return hash_file(path)


def have_tools_changed() -> bool:
    """Return True if a tool changed since this process read its state first."""
    if read_exporter_state() != read_exporter_state.__wrapped__():
        return True
    # An installation renames folders in `site-packages` and so changes its timestamp.
    is_unchanged = _read_site_stamps() == _read_first_site_stamps()
    if is_unchanged and not have_installed_files_changed():
        return False
    current = read_distribution.__wrapped__
    return _list_other_owners("") != _list_other_owners.__wrapped__("") or any(
        read_distribution(name, "") != current(name, "") for name in DISTRIBUTIONS
    )


@cache
def _read_first_site_stamps() -> tuple[int, ...]:
    return _read_site_stamps()


def _read_site_stamps() -> tuple[int, ...]:
    """Return the last change of each folder of `sys.path`, or 0 if it does not exist."""
    folders = [Path(name) for name in sys.path]
    return tuple(path.stat().st_ctime_ns if path.is_dir() else 0 for path in folders)


@cache
def read_tool_parts(overlay: str = "") -> dict[str, str]:
    """Return the parts of all cells: Python, the platform, this package, the other tools.

    The switch of private functions is a part if it is set, because some groups change results.
    """
    _read_first_site_stamps()  # before the states are read
    states = {f"{TOOL_PREFIX}{name}": read_tool_state(name, overlay) for name in DISTRIBUTIONS}
    return read_own_parts() | states


def read_own_parts() -> dict[str, str]:
    """Return the parts of all cells without those of installed packages."""
    parts = {
        "python": platform.python_version(),
        "platform": describe_platform().lower(),
        "exporter": read_exporter_state(),
    }
    if (switch := os.environ.get(TORCH_PRIVATE)) is not None:
        parts["torch_private"] = switch
    return {f"{TOOL_PREFIX}{name}": state for name, state in parts.items()}


def read_tool_state(name: str, overlay: str = "") -> str:
    """Return one state for all distributions that own the module of a tool.

    pip installs `onnxruntime-gpu` over `onnxruntime`, and both own the module then.
    """
    names = (name, *_list_other_owners(overlay).get(name, ()))
    states = list(filter(None, (read_package_state(each, overlay) for each in names)))
    if len(states) < 2:
        return "".join(states)
    return f"{states[0].partition(' ')[0]} {hash_text(', '.join(states))[:12]}"


@cache
def _list_other_owners(overlay: str) -> dict[str, list[str]]:
    """Return the distributions with another name that own the module of a tool."""
    owners: dict[str, list[str]] = {}
    folders = [*filter(None, (overlay,)), *list_package_folders()]
    stamp_folders(folders)
    paths = (path for folder in folders for path in sorted(Path(folder).glob("*.dist-info/RECORD")))
    modules = {name: name.replace("-", "_") for name in DISTRIBUTIONS}
    for path in paths:
        owner, lines = (
            path.parent.name.partition("-")[0],
            b"\n" + read_record(path),
        )
        for name, module in modules.items():
            if owner != module and f"\n{module}/__init__.py,".encode() in lines:
                owners.setdefault(name, []).append(owner)
    return owners


def _read_version(name: str) -> str:
    is_tool = name in DISTRIBUTIONS
    state = read_tool_state(name) if is_tool else read_package_state(name)
    return state.partition(" ")[0] or "missing"


@cache
def read_exporter_state() -> str:
    """Return the version of this package and a hash of its modules.

    The hash is necessary because an edit in a checkout does not change the version.
    """
    package = Path(__file__).parents[1]
    files = sorted((*package.rglob("*.py"), *package.rglob("*.mjs")))
    hashes = "".join(f"{path.relative_to(package)}:{hash_source(path)};" for path in files)
    return f"{_read_version(DISTRIBUTION)} {hash_text(hashes)[:12]}"


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    # Names of files may contain bytes that are not UTF-8.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
