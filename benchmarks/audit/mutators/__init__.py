"""The small changes that an audit makes to a file."""
