"""Parts that all packages share and none owns: YAML files, typed documents, control sockets, HTML pages and errors."""
