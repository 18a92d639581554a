"""Results of runs, on disk and in memory, their expectations, and what is made of both: verdict, report, view."""
