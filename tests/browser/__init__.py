"""`reports/index.html` in a real browser: `nox -s html`."""
