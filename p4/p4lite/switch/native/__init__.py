"""C to shared objects: the compiler, and the store of what it made."""
