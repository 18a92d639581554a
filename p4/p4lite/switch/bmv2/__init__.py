"""BMv2 JSON as it is: a reader that knows places, and the headers with their references resolved."""
