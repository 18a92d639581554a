/* What compiled modules call in the place of functions of frames.py, which says what they do. Objects are borrowed; a
 * function that returns NULL or MRC_FAILED has raised.
 */
#ifndef MRC_FRAMES_H
#define MRC_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

int64_t mrc_arrival(PyObject *ring, int64_t at);
PyObject *mrc_take(PyObject *ring, int64_t at);
int64_t mrc_send(int64_t descriptor, PyObject *routes, PyObject *packets);

#endif
