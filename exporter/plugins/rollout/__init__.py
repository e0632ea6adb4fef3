"""The keys `rollout` and `tokens`: a loop in which each step gets outputs of the step before it."""
