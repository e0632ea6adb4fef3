"""The child process that imports torch and lists the operators that a model lacks."""
