"""Plan a run: its cells, their routes, the selection and the expected failures."""
