"""Records of a running lab on disk, and the check of which files may be trusted."""
