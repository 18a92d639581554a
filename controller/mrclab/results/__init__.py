"""What a run leaves on disk and in memory, what is expected of it, and what is made of that: verdict, report, view."""
