"""The interfaces that do not change within a major version, and files that version 1.0 wrote."""
