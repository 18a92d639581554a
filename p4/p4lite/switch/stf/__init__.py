"""The STF engine: p4c's simple test framework, run against the embedded switch in virtual time.

`parse` reads the language, `tables` turns its keys and names into control operations, `engine` runs a
test and `diff` shows what differed. The language is described in docs/p4-target.md, section STF.
"""
