"""Create jobs for an engine, divide large ones and order them by cost."""
