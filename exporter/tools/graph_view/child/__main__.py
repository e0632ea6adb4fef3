"""The entry point: `python -m exporter.tools.graph_view.child REQUEST RESPONSE`."""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.processes.request import serve_request
from exporter.tools.graph_view.protocol import GraphRequest


def _handle(content: bytes) -> str:
    request = GraphRequest.model_validate_json(content)
    path = Path(request.path)
    from exporter.checks.files.model_file import UnreadableModel, read_model
    from exporter.tools.graph_view.child.html_page import render_page
    from exporter.tools.graph_view.child.module_scopes import format_scopes
    from exporter.tools.graph_view.child.text_form import elide_weights, format_model

    try:
        model = read_model(path)
    except UnreadableModel as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(int(ExitCode.UNREADABLE))
    if request.form == "scopes":
        return format_scopes(model)
    elide_weights(model)
    return render_page(model, path.name) if request.form == "html" else format_model(model)


if __name__ == "__main__":
    serve_request(_handle)
