"""Build a plan: decide, restore, schedule, execute and collect."""
