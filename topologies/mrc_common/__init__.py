"""What all packages of the lab share and none owns: the reader of YAML files and the frame of HTML pages."""
