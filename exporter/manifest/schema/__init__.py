"""The tables that users write: validation, JSON Schema and reference come from these classes."""
