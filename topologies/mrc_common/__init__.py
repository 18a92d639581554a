"""What all packages share and none owns: the reader of YAML files, the frame of HTML pages and the base of errors."""
