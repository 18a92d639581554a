/* What compiled modules call in the place of functions of framing.py and reading.py: their prototypes, included before each module.
 *
 * A CPyTagged is an int as mypyc passes it: twice its value where that fits 63 bits, else a pointer to the object, with
 * the last bit set. Objects are borrowed; a function that returns NULL or fails has raised.
 */
#ifndef MRC_FRAMING_H
#define MRC_FRAMING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

typedef size_t CPyTagged;

PyObject *mrc_packet(PyObject *form, PyObject *outer, PyObject *payload, CPyTagged offset, CPyTagged size, char absent,
                     ...);
char mrc_sealed(PyObject *packet, int64_t at, int64_t missing);
char mrc_append_words(PyObject *buffer, int64_t first, int64_t second, int64_t third, int64_t fourth);

enum { MRC_FAILED = -113 }; /* what a function of a machine word returns where it may have raised */

/* Turn a number into one whose bytes in memory are the most significant first, or back. */
static inline uint64_t mrc_big_endian(uint64_t value)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? value : __builtin_bswap64(value);
}

/* Read `size` bytes as a number, the most significant first; 0 where the packet ends before it, and set `failed`. */
static inline uint64_t mrc_number(PyObject *packet, int64_t at, int64_t size, int *failed)
{
    uint64_t value = 0;
    *failed = at < 0 || at > PyBytes_GET_SIZE(packet) - size;
    if (*failed)
        PyErr_SetString(PyExc_IndexError, "the packet ends before the number");
    else
        memcpy(&value, PyBytes_AS_STRING(packet) + at, (size_t)size);
    return mrc_big_endian(value) >> (64 - 8 * size);
}

static inline int64_t mrc_word(PyObject *packet, int64_t at, int64_t size)
{
    int failed;
    uint64_t value = mrc_number(packet, at, size, &failed);
    return failed ? MRC_FAILED : (int64_t)value;
}

static inline int64_t mrc_u8(PyObject *packet, int64_t at)
{
    return mrc_word(packet, at, 1);
}

static inline int64_t mrc_u16(PyObject *packet, int64_t at)
{
    return mrc_word(packet, at, 2);
}

static inline int64_t mrc_u32(PyObject *packet, int64_t at)
{
    return mrc_word(packet, at, 4);
}

static inline CPyTagged mrc_u64(PyObject *packet, int64_t at)
{
    int failed;
    uint64_t value = mrc_number(packet, at, 8, &failed);
    PyObject *object = failed || value >> 62 == 0 ? NULL : PyLong_FromUnsignedLongLong(value);
    return object ? (CPyTagged)object | 1 : failed || value >> 62 ? 1 : (CPyTagged)value << 1;
}

#endif
