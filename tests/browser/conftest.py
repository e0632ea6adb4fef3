"""Fixtures that open a page of the report from a disk, without any error in the browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.site import render_site_files

api = pytest.importorskip("playwright.sync_api", reason="drives the browser; see `nox -s html`")


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Opener:
    """Opens the report of a run and stores all messages and requests of the browser."""

    browser: Any
    file: Path
    contexts: list[Any] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Console messages, errors and dialogs."""
    requests: list[str] = field(default_factory=list)

    def __call__(
        self,
        manifest: Manifest,
        run: RunRecord,
        fragment: str = "",
        **context: Any,
    ) -> Any:
        page_text = str(render_site_files(manifest, run)["index.html"])
        self.file.write_text(page_text, encoding="utf-8")
        self.contexts.append(self.browser.new_context(**context))
        page = self.contexts[-1].new_page()
        page.on("console", lambda message: self.failures.append(message.text))
        page.on("pageerror", lambda error: self.failures.append(str(error)))
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(self.file.as_uri() + fragment)
        return page

    def _dismiss(self, dialog: Any) -> None:
        self.failures.append(dialog.message)
        dialog.dismiss()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    names = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else BROWSERS
    path = next((item for item in map(shutil.which, names) if item), None)
    if path is None:
        refuse = pytest.fail if "NEED_BROWSER" in os.environ else pytest.skip
        refuse("no Chromium or Chrome here; CHROMIUM names one")
    # The sandbox of the browser does not start for root, which containers often are.
    sandbox = not hasattr(os, "geteuid") or os.geteuid() != 0
    with api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, chromium_sandbox=sandbox)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Return an opener; its pages may cause no message, error, dialog or request."""
    opener = Opener(browser, tmp_path / "index.html")
    yield opener
    for context in opener.contexts:
        context.close()
    assert not opener.failures
    assert {url.partition("#")[0] for url in opener.requests} <= {opener.file.as_uri()}
