"""A lab that is up, as experiments see it: the same on both clocks."""
