"""The process that creates and checks the mutants of an audit."""
