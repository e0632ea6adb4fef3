"""The child process that imports torch, exports calls of operators and runs the files."""
