"""The child process that imports torch, like a worker, and lists supported operators."""
