"""The blocks of the documents use commands and options that a stranger has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from exporter.cli.entry_point import exporter

ROOT = Path(__file__).parents[3]
#: The documents for users. Those for contributors name the sessions of nox.
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if path.name not in ("architecture.md", "style.md", "evidence.md")
)
_BLOCK = re.compile(r"^ *```(?:console|yaml|sh|bash)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^[ $-]*(?:run: |! )?exporter ([a-z]+)(.*)$", re.MULTILINE)


def list_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the long options of each command in the blocks of a page."""
    for block in _BLOCK.findall(text):
        for name, rest in _COMMAND.findall(block):
            # A comment, another command, or the command of `record`.
            line = re.split(r" (?:#|\\|\\||>>|&&|--) ", f"{rest} ")[0]
            try:
                words = shlex.split(line)
            except ValueError:  # a quote ends in another line
                words = line.split()
            yield name, [word.partition("=")[0] for word in words if word.startswith("--")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_command_of_a_block_exists_with_its_options(path: Path) -> None:
    context = click.Context(exporter)
    text = path.read_text(encoding="utf-8")
    # README names the sessions of this repository, too.
    assert path.name == "README.md" or "nox -s" not in "".join(_BLOCK.findall(text))
    for name, options in list_commands(text):
        command = exporter.get_command(context, name)
        assert command, f"{path.name}: exporter {name}"
        groups = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        known = {"--help", *(o for each in groups for p in each.params for o in p.opts)}
        known |= {o for each in groups for p in each.params for o in p.secondary_opts}
        assert {*options} <= known, f"{path.name}: exporter {name}"


def test_the_blocks_are_read() -> None:
    text = "```console\n$ exporter gate --against main --wrong=1  # why\n```\n"
    assert list(list_commands(text)) == [("gate", ["--against", "--wrong"])]
    assert sum(len(list(list_commands(path.read_text()))) for path in PAGES) > 20
