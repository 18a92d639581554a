"""A lab on this machine: described, brought up, recorded and watched, entered; and the clients of its parts."""
