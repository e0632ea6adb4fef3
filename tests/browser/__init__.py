"""`index.html` of a site in a real browser: `nox -s html`."""
