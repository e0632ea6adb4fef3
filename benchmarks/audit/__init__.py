"""The audit of the checks: small changes of proved files, and those that no check catches."""
