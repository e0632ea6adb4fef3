"""Results with other packages: of `cpu@NAME`, and of `rehearse`, which compares them."""

#: In the build folder. A model ID cannot start with a dot.
REHEARSALS_FOLDER = ".rehearsals"
