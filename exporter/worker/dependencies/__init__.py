"""The files and packages that a model depends on."""
