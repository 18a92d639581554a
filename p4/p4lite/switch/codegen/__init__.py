"""The facts of a program and its JSON to C, as text: layout of the PHV, parser, actions, pipelines, deparser."""
