"""The option `gate --against`: the promises and the policy of a revision of git."""
