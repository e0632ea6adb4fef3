"""Execute jobs: interpret their ends, retry, join parts and replace model folders."""
