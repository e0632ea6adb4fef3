"""The audit makes small changes to a proved file and counts the changes that checks miss."""
