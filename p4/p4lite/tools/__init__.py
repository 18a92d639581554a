"""Tools for authors of P4 programs: traces, a debugger, coverage, comparison."""
