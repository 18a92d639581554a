"""libmrc: the C library by which programs of the C interfaces `mrc.h`, `mrc_ctl.h` and libibverbs use a host of a lab.

The sources are data of this package; `build` compiles them where a C compiler is. docs/tutorials/c-program.md shows
how programs use the library, docs/explanation/libmrc.md how it works.
"""
