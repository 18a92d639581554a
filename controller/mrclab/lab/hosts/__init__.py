"""The hosts of a lab: their interfaces, their agents' control sockets, and programs inside them."""
