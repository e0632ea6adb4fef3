"""The site of docs/: the README as its start page, and links that work outside of a checkout."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page; files that the site lacks are links to the repository, or text."""
    source = page.file.src_uri
    if source == "index.md":
        markdown = _read_start(markdown)
    return _color_commands(_redirect(markdown, f"docs/{source}", config.repo_url))


def _read_start(index: str) -> str:
    """Return the README's text, followed by the tables of pages in its links' notation."""
    readme = (ROOT / "README.md").read_text("utf-8")
    readme = re.sub(r"^\[!\[.*\n", "", readme, flags=re.MULTILINE)  # the badge of the repository
    # The site shows the title of a block.
    readme = re.sub(r"^\*\*`[^`\n]+`\*\*\n\n(?=```\w+ title=)", "", readme, flags=re.MULTILINE)
    moved = _LINK.sub(lambda m: f"{m[1]}[{m[2]}]({_move(m[3])})", readme)
    return moved + "\n" + re.sub(r"^(?=#+ )", "#", index, flags=re.MULTILINE)


def _move(target: str) -> str:
    """Return a link of the README as one of a page in docs/."""
    if ":" in target or target.startswith("#"):
        return target
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _redirect(markdown: str, name: str, repository: str) -> str:
    """Return the page with links to the repository in place of files that the site lacks."""

    def replace(match: re.Match[str]) -> str:
        text, target = (
            match[2],
            posixpath.normpath(posixpath.join(posixpath.dirname(name), match[3])),
        )
        if not match[3].startswith("../") or target.startswith("docs/"):
            return match[0]
        return f"[{text}]({repository}/blob/main/{target})" if repository else text

    return _LINK.sub(replace, markdown)


def _color_commands(markdown: str) -> str:
    """Return the page with blocks of commands only as shell: `console` colors lines with `$`."""
    return _CONSOLE.sub(
        lambda m: m[0] if re.search(r"^\$ ", m[1], re.MULTILINE) else f"```bash\n{m[1]}```",
        markdown,
    )
