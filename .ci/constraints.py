"""Upgrade the pinned packages: `nox -s constraints`.

The arguments are all requirements, then `--` and the packages to upgrade, or none for all of them.
torch keeps its release and has no hashes: its index is chosen by each machine, and a new release
has steps of its own in CONTRIBUTING.md.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
NOX = ROOT / ".ci/nox.txt"
#: Files that repeat some of the versions.
COPIES = (ROOT / "pyproject.toml", ROOT / ".pre-commit-config.yaml")
#: A pinned package without a pattern such as `1.17.*`.
PIN = re.compile(r"""(?<![\w.-])([a-z][\w-]*)==([\w.]+)(?=["'\s,\]]|$)""", re.MULTILINE)


def compile_pins(requirements: list[str], upgraded: list[str]) -> dict[str, str]:
    """Return the pin of each package that the requirements need, with the hashes of its files.

    One version is for all supported versions of Python and systems, because pip takes no two.
    """
    result = ROOT / ".nox" / "constraints.txt"
    result.write_text(CONSTRAINTS.read_text())  # versions that uv keeps unless it upgrades them
    command = ["uv", "pip", "compile", "-", "-o", str(result), "--quiet", "--no-annotate"]
    command += ["--no-header", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--fork-strategy", "fewest", "--only-binary", ":all:"]
    command += [f"--upgrade-package={name}" for name in upgraded] or ["--upgrade"]
    subprocess.run(command, input="\n".join(requirements), text=True, check=True)
    pins: dict[str, str] = {}
    for pin in re.split(r"\n(?=\S)", result.read_text().strip()):
        name, _, rest = pin.partition("==")
        version, *hashes = rest.splitlines()
        # pip installs a package for another system only there, so no pin needs its marker.
        text = "\n".join([f"{name}=={version.partition(' ')[0]} \\", *hashes])
        if pins.setdefault(name, text) != text:
            sys.exit(f"{name}: no version is for all of Python 3.11 to 3.14; limit a requirement")
    return pins


def list_nox() -> dict[str, str]:
    """Return the pin of each package that nox needs here, with the hash of its wheel."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"]
    command += ["--ignore-installed", "--only-binary", ":all:", "-c", str(CONSTRAINTS), "nox"]
    report = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    pins = {}
    for each in json.loads(report)["install"]:
        name = each["metadata"]["name"].lower().replace("_", "-")
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        pins[name] = f"{name}=={each['metadata']['version']} --hash=sha256:{digest}"
    return pins


def write_pins(path: Path, pins: dict[str, str]) -> None:
    """Write sorted pins below the comment at the top of the file."""
    comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*comment, *sorted(pins.values())]) + "\n")


def main() -> None:
    """Write constraints.txt, then each file that repeats versions."""
    end = sys.argv.index("--")
    pins = compile_pins(sys.argv[1:end], sys.argv[end + 1 :])
    pins["torch"] = next(
        line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch==")
    )
    write_pins(CONSTRAINTS, pins)
    write_pins(NOX, list_nox())
    versions = {name: re.split(r"==| ", pin)[1] for name, pin in pins.items()}
    for path in COPIES:
        text = path.read_text()
        path.write_text(PIN.sub(lambda pin: f"{pin[1]}=={versions.get(pin[1], pin[2])}", text))


main()
