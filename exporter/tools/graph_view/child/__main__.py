"""Entry of the process: `python -m exporter.tools.graph_view.child FILE.onnx text|html`.

In: a file and a format. Out: the text on stdout and exit code 0; 5 and a line on stderr where the
file cannot be read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.errors import ExitCode


def main() -> int:
    """Writes the file that the command line names to stdout."""
    path, form = Path(sys.argv[1]), sys.argv[2]
    from exporter.checks.files.read import Unreadable, read_model
    from exporter.tools.graph_view.child.elide_weights import shorten
    from exporter.tools.graph_view.child.html_page import page
    from exporter.tools.graph_view.child.text_form import text

    try:
        model = read_model(path)
    except Unreadable as problem:
        sys.stderr.write(f"{problem}\n")
        return int(ExitCode.UNREADABLE)
    shorten(model)
    shown = page(model, path.name) if form == "html" else text(model)
    sys.stdout.buffer.write(shown.encode(errors="replace"))
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
