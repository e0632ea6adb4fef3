"""Share stored cells between machines through a file server or an object store.

Input: entries and files of the local store. Output: the same at a URL, and back.
"""
