"""Load the source of an entry as a model that is ready to run."""
