"""The sessions that measure: `nox -f benchmarks/noxfile.py -s zoo`.

Those of the noxfile of a contributor are here, too, because most of these need its `environment`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from noxfile import PARALLEL, build, run_shared  # noqa: E402 - a noxfile is in no package

nox.options.envdir = ROOT / ".nox"
nox.options.sessions = ["bench"]


@nox.session(venv_backend="none", requires=["environment"])
def operators(session: nox.Session) -> None:
    """Measure the calls of all operators, in half an hour; `-- topk` prints those of a function."""
    run_shared(session, "python", "-m", "benchmarks.operators", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def audit(session: nox.Session) -> None:
    """Change files in small ways and count the changes that the checks miss; `-- alexnet/18`."""
    run_shared(session, "python", "-m", "benchmarks.audit", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def soundness(session: nox.Session) -> None:
    """Run sound models over 20 seeds: none may be red; `-- --models 'loop_*' --seeds 3`."""
    run_shared(session, "python", "-m", "benchmarks.soundness", *session.posargs)


@nox.session
def zoo(session: nox.Session) -> None:
    """Compare verdicts on real architectures with another judgement; `-- --models bert`.

    `-- --seeds 20` runs the sound cells with other weights and inputs instead. `-- --generators`
    runs the tests of models that generate, with transformers and ONNX Runtime GenAI.
    """
    has_generators = "--generators" in session.posargs
    extras = ("export", "genai") if has_generators else ("export",)
    build(session, extras, ("unit", "zoo"))
    if has_generators:
        paths = ("tests/traps", "tests/worker", "tests/integration/test_generation.py")
        arguments = ("--timeout", "1800", "-k", "transformers or generation", *paths)
        session.run("python", "-m", "pytest", *arguments)
        return
    has_seeds = "--seeds" in session.posargs
    module = ("benchmarks.soundness", "--zoo") if has_seeds else ("benchmarks.zoo",)
    session.run("python", "-m", *module, *session.posargs)


#: What `torch` runs, by name: an environment variable, and the arguments of Python.
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
        session.error("name a release, such as `nox -f benchmarks/noxfile.py -s torch -- 2.15.0`")
    release, *names = session.posargs
    if unknown := sorted(set(names) - set(TORCH_RUNS)):
        session.error(f"{unknown[0]}: no such run; use some of {', '.join(TORCH_RUNS)}")
    groups = ("dev", "bench", "zoo")
    build(session, ("export", "openvino"), groups, release)
    failed = []
    for name in names or TORCH_RUNS:
        variable, arguments = TORCH_RUNS[name]
        command = ["python", "-m", *arguments]
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

    `-- --toolchain lowest` selects one, `-- tests/unit` other tests. `-- --toolchain transformers`
    runs the flow with the newest release of that package beside the pinned ones.
    """
    run_shared(session, "python", "-m", "benchmarks.toolchains", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def reproducers(session: nox.Session) -> None:
    """Run the reproducer of every red model and of every sound model of `tests/traps`."""
    session.env["REPRODUCERS"] = "all"
    path = "tests/traps/test_reproducers.py"
    run_shared(session, "pytest", *PARALLEL, "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def public(session: nox.Session) -> None:
    """Compare the files of all models and opsets with those of plain `torch.onnx.export` calls."""
    session.env["PUBLIC"] = "all"
    path = "tests/integration/test_public_files.py"
    run_shared(session, "pytest", "-v", "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def releases(session: nox.Session) -> None:
    """Install releases of ONNX Runtime and compare the table of what they load with them."""
    session.env["RELEASES"] = "all"
    path = "tests/integration/test_release_table.py"
    run_shared(session, "pytest", "-v", "--timeout", "1800", path, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def faults(session: nox.Session) -> None:
    """Kill workers at random over 1,000 cells, and the export 50 times; edit and damage files.

    It also exports models that change themselves in several selections.
    """
    session.env["FAULTS"] = "long"
    units = ("test_increments.py", "test_corrupted_build.py")
    paths = ("tests/faults", *(f"tests/unit/pipeline/{name}" for name in units))
    run_shared(session, "pytest", "-s", "--timeout", "1800", *paths, *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def bench(session: nox.Session) -> None:
    """Measure every speed aim and write reports/BENCHMARKS.md; `-- idle`, `-- --quick`."""
    run_shared(session, "python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def checks(session: nox.Session) -> None:
    """Compare the seconds of the checks with those of the export; `-- --models 'resnet*'`."""
    run_shared(session, "python", "-m", "benchmarks.checks", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def large(session: nox.Session) -> None:
    """Measure the memory of models of 2.2 and 4 GB by phase; `-- --sizes 0.6 --limit 2`."""
    run_shared(session, "python", "-m", "benchmarks.large", *session.posargs)
