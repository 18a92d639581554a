"""What is written down about a running lab, and which files may be trusted."""
