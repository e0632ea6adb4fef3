"""Read TOML files, validate their tables, and merge the layers of settings with their origins."""
