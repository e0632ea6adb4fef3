"""The site of docs/ starts with the README, with links that work there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
HOOK = runpy.run_path(str(ROOT / ".ci/site.py"))["on_page_markdown"]


def convert(name: str, text: str, repository: str = "") -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=name))
    return str(HOOK(text, page=page, config=SimpleNamespace(repo_url=repository), files=None))


def test_the_start_page_has_the_text_of_the_readme_and_the_list_of_pages() -> None:
    page = convert("index.md", (ROOT / "docs/index.md").read_text("utf-8"))
    assert page.startswith("# onnx-exporter-matrix\n")
    assert page.count("(docs/") == page.count("](../") == 0
    assert "\n## Documentation\n" in page
    for target in re.findall(r"\]\(([^):#]+\.(?:md|svg))", page):
        assert (ROOT / "docs" / target).is_file(), target
    assert '```python title="manifests/classifier.py"' in page
    assert "**`manifests/classifier.py`**" not in page


def test_files_out_of_the_site_are_links_to_the_repository_or_text() -> None:
    text = "[Contributing](../CONTRIBUTING.md) and [The gate](gate.md)"
    assert convert("ci.md", text) == "Contributing and [The gate](gate.md)"
    linked = convert("ci.md", text, "https://host/acme/tool")
    assert "[Contributing](https://host/acme/tool/blob/main/CONTRIBUTING.md)" in linked
    assert convert("examples/README.md", "[x](../ci.md)") == "[x](../ci.md)"


def test_blocks_of_commands_only_are_colored() -> None:
    only, mixed = "```console\nexporter init\n```\n", "```console\n$ exporter gate\nok\n```\n"
    assert convert("ci.md", only) == "```bash\nexporter init\n```\n"
    assert convert("ci.md", mixed) == mixed
