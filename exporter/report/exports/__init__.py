"""Files of a report for other programs: JUnit, CSV, SVG, badges, and the files of plugins."""
