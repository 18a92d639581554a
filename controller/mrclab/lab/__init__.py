"""A lab on one or more machines: bring it up, record it, enter it, break it, and talk to its hosts and switches."""
