"""Rules of the keys that most entries lack, and messages for what is wrong in a file."""
