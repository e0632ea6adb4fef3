"""Lines, tables and annotations of the commands."""
