"""A class of the workshop: its roster and deadlines, what was handed in, grades of it, and gradebooks."""
