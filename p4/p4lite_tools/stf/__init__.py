"""The STF engine: p4c's simple test framework, run against the embedded switch in virtual time.

`parse` reads the language, `names` turns its keys and names into those of a program, `engine` runs a
test and `diff` shows what differed. The language is described in p4-target.md, section STF.
"""
