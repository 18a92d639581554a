/* What compiled modules call in the place of functions of framing.py: their prototypes, included before each module.
 *
 * A CPyTagged is an int as mypyc passes it: twice its value where that fits 63 bits, else a pointer to the object, with
 * the last bit set. Objects are borrowed; a function that returns NULL or fails has raised.
 */
#ifndef MRC_FRAMING_H
#define MRC_FRAMING_H

#include <stddef.h>
#include <stdint.h>

typedef struct _object PyObject;
typedef size_t CPyTagged;

PyObject *mrc_packet(PyObject *form, PyObject *outer, PyObject *payload, CPyTagged offset, CPyTagged size, char absent,
                     ...);
char mrc_sealed(PyObject *packet, int64_t at, int64_t missing);
char mrc_append_words(PyObject *buffer, int64_t first, int64_t second, int64_t third, int64_t fourth);

#endif
