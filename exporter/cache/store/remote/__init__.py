"""Share stored cells between machines through a file server or an object store."""
