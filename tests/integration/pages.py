"""Run the blocks of a page in an empty folder: `python -m tests.integration.pages README.md`.

A block with a title is a file, a `diff` is an edit, and a `console` has commands after `$ ` with
their outputs. The command above writes the real outputs into the page; a test compares them.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from tests.integration.project import ROOT, run_exporter, run_git

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: A line of a page that replaces some lines of an output.
OMITTED = "..."
#: Figures, hashes and days differ between machines and runs.
VARYING = re.compile(
    r"\d+\.\d+(e[+-]\d+)?|\d+ times|\[\d+(, \d+)*\]|\b[0-9a-f]{12}\b|\d{4}-\d\d-\d\d"
)


#: The README shows a catch in its first screen: the project below it exists, and was accepted.
README = ROOT / "README.md"
ACCEPT = """
$ git init -q -b main
$ exporter init --yes
$ exporter export
$ exporter baseline
$ git add .
$ git commit -q -m accepted
$ git checkout -q -b topic
"""


def run_page(page: Path, root: Path) -> Iterator[tuple[str, list[str], str]]:
    """Run all blocks; yield each command with its lines on the page and its real output.

    A command that ends with another exit code than the page promises raises an AssertionError.
    """
    blocks = BLOCK.findall(page.read_text("utf-8"))
    if page == README:
        blocks.sort(key=lambda block: not block[1])
        blocks.insert(sum(bool(title) for _, title, _ in blocks), ("console", "", ACCEPT))
    for language, title, text in blocks:
        if title:
            path = root / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        elif language == "diff":
            subprocess.run(["git", "apply"], cwd=root, input=text, text=True, check=True)
        elif language == "console":
            yield from run_console(root, text)


def run_console(root: Path, text: str) -> Iterator[tuple[str, list[str], str]]:
    """Run the commands of one block, as `run_page` does."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *expected = part.splitlines()
        command, _, comment = line.partition("  #")
        code = int(comment.removeprefix(" exit code ")) if "exit code" in comment else 0
        yield line, expected, run_command(root, shlex.split(command), code)


def run_command(root: Path, words: list[str], code: int) -> str:
    """Return what a terminal shows: standard output, then standard error."""
    program, *arguments = words
    if program == "git":
        return run_git(root, *arguments)
    if program == "rm":
        (root / arguments[-1]).unlink()
        return ""
    assert program == "exporter", words
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ran = run_exporter(root, *arguments, PATH=path)  # `exporter record python ...`
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def assert_shown(line: str, expected: list[str], output: str) -> None:
    """Raise an AssertionError unless the lines of a page are the output of the command `line`.

    If the page omits lines, its other lines must occur in their order.
    """
    shown = _neutral(output.rstrip("\n"))
    if expected and OMITTED not in expected:
        assert _neutral("\n".join(expected)) == shown, line
    position = 0
    text = "\n".join(["", *expected, ""])
    for piece in text.split(f"\n{OMITTED}\n"):
        lines = _neutral(piece.strip("\n"))
        found = shown.find(lines, position)
        assert found >= 0, f"{line}\nexpected:\n{lines}\noutput:\n{output}"
        position = found + len(lines)


def _neutral(text: str) -> str:
    text = re.sub(r"\n {8,}(?=\S)", " ", text)  # a page wraps long lines
    return VARYING.sub("#", re.sub(r"; fails on .*", "", text))  # the sizes are those of `axes`


def write_outputs(page: Path) -> None:
    """Replace each output of a page that shows all lines by the one of a run."""
    text = page.read_text("utf-8")
    with TemporaryDirectory() as folder:
        for line, expected, output in run_page(page, Path(folder)):
            if expected and OMITTED not in expected:
                before = "\n".join([f"$ {line}", *expected])
                assert before in text, line
                text = text.replace(before, "\n".join([f"$ {line}", output.rstrip("\n")]))
    page.write_text(text, "utf-8")


def draw_catch(path: Path) -> None:
    """Write the README's picture: what a terminal of 88 columns shows of its red gate.

    A commit and a day are left out, and so is all between the command that reproduces the failure
    and the verdict.
    """
    with TemporaryDirectory() as folder:
        commands = [line for line, _, _ in run_page(README, Path(folder))]
        gate = commands[-1].partition("  #")[0]
        lines = read_terminal(shlex.split(gate), Path(folder), columns=88)
    first = next(index for index, line in enumerate(lines) if "newly red" in line)
    last = next(index for index, line in enumerate(lines) if "reproduce: " in line)
    shown = [line for line in lines[first : last + 1] if "last green" not in line]
    verdict = next(index for index, line in enumerate(lines) if "Blocks the merge" in line)
    console = Console(record=True, width=88, file=io.StringIO())
    for line in (f"$ {gate}", *shown, "...", *lines[verdict:]):
        console.print(Text.from_ansi(line))
    picture = console.export_svg(title="a branch that breaks a promise", unique_id="catch")
    # A page must not load a font of another host.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))


def read_terminal(command: list[str], root: Path, columns: int) -> list[str]:
    """Return the lines that a command prints to a terminal, with their colors."""
    terminal, child = pty.openpty()
    fields = {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    words = (sys.executable, "-m", *command)
    environment = {**os.environ, **fields}
    with subprocess.Popen(
        words, cwd=root, env=environment, stdout=child, stderr=subprocess.DEVNULL
    ):
        os.close(child)
        output = b""
        with suppress(OSError):  # the end of a terminal is an error
            while chunk := os.read(terminal, 1 << 16):
                output += chunk
    os.close(terminal)
    return output.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_outputs(ROOT / name)
        if ROOT / name == README:
            draw_catch(ROOT / "docs/catch.svg")
