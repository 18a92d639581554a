"""C to shared objects: the compiler, the store of what it made, and what a library says of its structures."""
