"""Tools for programs of p4lite: interpreter, debugger, coverage, comparison, editor, notebook, p4lang's commands.

The core finds them by entry points and imports none of them.
"""
