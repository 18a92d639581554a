"""A class of the workshop: its roster and deadlines, what was handed in, and grades of it."""
