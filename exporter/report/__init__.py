"""Reports from records: pages for people, and files for other programs."""
