"""Editor support of the compiler: a formatter, an index of names, and a language server."""
