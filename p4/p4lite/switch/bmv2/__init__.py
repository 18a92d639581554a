"""BMv2 JSON as it is: a reader that knows places, and the declarations with their references resolved."""
