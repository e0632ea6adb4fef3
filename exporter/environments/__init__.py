"""Virtual environments with other packages: other runtimes, and other toolchains."""
