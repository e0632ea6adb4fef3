"""What this environment can do, tried in a process of its own."""
