"""Pages of a report for people: markdown, pictures, and one HTML file for a browser."""
