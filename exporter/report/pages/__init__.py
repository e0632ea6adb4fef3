"""Pages of a report for people: markdown, and one HTML file for a browser."""
