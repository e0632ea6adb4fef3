"""The worker process: its log, limits and lifetime, and the failures of its stages."""
