"""The child process of the doctor, which imports torch and the runtimes."""
