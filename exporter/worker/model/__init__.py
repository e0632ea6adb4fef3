"""From the source of an entry to a model that is ready to run."""
