"""Replace links to files outside of docs/ by links to the repository, or by text."""

import posixpath
import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page with links to the repository in place of files that the site lacks."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        text, target = match[1], posixpath.normpath(posixpath.join(folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        return f"[{text}]({config.repo_url}/blob/main/{target})" if config.repo_url else text

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)]*)\)", replace, markdown)
