/* pf_exchange as Python calls it: words and bytes in, a list of arrivals out. ctypes would spend more on
 * converting them than the fabric on carrying the packets (`fabric/outside.py` does, where this cannot be built).
 *
 * Long packets are not copied: the fabric refers to the sender's object, of which the ferry holds a reference, and the
 * receiver gets the same object where no other reference to it exists. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "fabric.h"

/* What it calls of the fabric's core, which is another library. */
struct ferry_calls {
    void (*lock)(struct fabric *), (*unlock)(struct fabric *);
    int (*exchange)(struct fabric *, struct port *const *, const struct pf_send *, uint64_t, struct pf_piece *, uint64_t,
                    uint64_t, uint64_t *, struct pf_batch *);
    uint64_t (*returned)(struct fabric *, void **, uint64_t, uint32_t);
};

enum { SEND_WORDS = sizeof(struct pf_send) / sizeof(uint64_t), RETURNED_AT_ONCE = 256 };

/* An external port as deliveries name it, and its place among those that are driven; in order of `key`. */
struct ferry_port {
    uint64_t key; /* device_id << 32 | port */
    int64_t place;
};

struct ferry {
    struct ferry_calls calls;
    const struct ferry_port *places;
    struct port *const *ports;
    uint64_t count, skip; /* ports; bytes of the header that is taken off what arrives */
    uint64_t *words;
    struct pf_piece *pieces;
    size_t words_room, pieces_room;
};

#pragma GCC visibility push(default)
struct ferry *ferry_new(const struct ferry_calls *calls, struct port *const *ports, const struct ferry_port *places,
                        uint64_t count, uint64_t skip);
void ferry_free(struct ferry *ferry);
PyObject *ferry_exchange(struct ferry *ferry, struct fabric *f, PyObject *words, PyObject *parts, uint64_t limit_ns,
                         uint64_t foresee_ns);
#pragma GCC visibility pop

/* `ports` and `places` stay the caller's, and in place. NULL: no memory. */
struct ferry *ferry_new(const struct ferry_calls *calls, struct port *const *ports, const struct ferry_port *places,
                        uint64_t count, uint64_t skip)
{
    struct ferry *ferry = calloc(1, sizeof *ferry);
    if (ferry)
        *ferry = (struct ferry){.calls = *calls, .places = places, .ports = ports, .count = count,
                                .skip = skip};
    return ferry;
}

void ferry_free(struct ferry *ferry)
{
    free(ferry->words);
    free(ferry->pieces);
    free(ferry);
}

/* Makes room for `needed` bytes in a buffer whose content is not wanted any more. */
static int room(void *buffer, size_t *had, size_t needed)
{
    void **at = buffer;
    if (needed <= *had)
        return 1;
    void *more = malloc(2 * needed);
    if (!more)
        return 0;
    free(*at);
    *at = more;
    *had = 2 * needed;
    return 1;
}

static int take_words(struct ferry *ferry, PyObject *words)
{
    size_t size = (size_t)PyByteArray_GET_SIZE(words);
    if (size % sizeof(struct pf_send)) {
        PyErr_SetString(PyExc_ValueError, "a packet is some words short");
        return 0;
    }
    if (!room(&ferry->words, &ferry->words_room, size)) {
        PyErr_NoMemory();
        return 0;
    }
    memcpy(ferry->words, PyByteArray_AS_STRING(words), size);
    for (size_t i = 0; i < size / sizeof(uint64_t); i += SEND_WORDS)
        if (ferry->words[i] >= ferry->count) {
            PyErr_SetString(PyExc_IndexError, "no such port");
            return 0;
        }
    return 1;
}

/* The packets' bytes as pieces; there must be as many as the words say. */
static int take_pieces(struct ferry *ferry, PyObject *parts, uint64_t sends)
{
    size_t count = (size_t)PyList_GET_SIZE(parts), size = 0, wanted = 0;
    if (!room(&ferry->pieces, &ferry->pieces_room, count * sizeof *ferry->pieces)) {
        PyErr_NoMemory();
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        if (!PyBytes_Check(part)) {
            PyErr_SetString(PyExc_TypeError, "packets are bytes");
            return 0;
        }
        ferry->pieces[i] = (struct pf_piece){(const uint8_t *)PyBytes_AS_STRING(part), (uint64_t)PyBytes_GET_SIZE(part), part};
        size += ferry->pieces[i].length;
    }
    for (uint64_t i = 0; i < sends; i++) {
        const struct pf_send *each = (const struct pf_send *)ferry->words + i;
        if (each->missing && each->missing >= each->length)
            wanted = SIZE_MAX; /* nonsense */
        else if (__builtin_add_overflow(wanted, each->length - each->missing, &wanted))
            wanted = SIZE_MAX;
    }
    if (wanted > size) {
        PyErr_SetString(PyExc_ValueError, "the packets have fewer bytes than they say");
        return 0;
    }
    return 1;
}

/* -1: it left through none of the ports that are driven. */
static int64_t place_of(const struct ferry *ferry, uint64_t key)
{
    uint64_t low = 0, high = ferry->count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (ferry->places[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ferry->count && ferry->places[low].key == key ? ferry->places[low].place : -1;
}

/* The sender's own object with the head as it arrived, if no other reference to it exists and its head is as long; NULL
 * otherwise. Other packets that refer to it have heads of their own, and none has another tail. */
static PyObject *same_object(const struct pf_delivery *each, uint64_t head, uint64_t skip)
{
    PyObject *owner = each->owner;
    if (!owner || Py_REFCNT(owner) != 1)
        return NULL;
    char *at = PyBytes_AS_STRING(owner);
    if ((const char *)each->middle != at + head - skip)
        return NULL;
    memcpy(at, each->stored + skip, head - skip);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    ((PyBytesObject *)owner)->ob_shash = -1;
#pragma GCC diagnostic pop
    return Py_NewRef(owner);
}

/* A packet without the header. */
static PyObject *packet_of(const struct pf_delivery *each, uint64_t skip, uint32_t *missing)
{
    uint64_t stored = each->length - each->missing, head = stored - PF_TAIL_BYTES;
    *missing = each->missing;
    if (!each->middle) {
        skip = stored < skip ? stored : skip;
        return PyBytes_FromStringAndSize((const char *)each->stored + skip, (Py_ssize_t)(stored - skip));
    }
    *missing = 0;
    skip = head < skip ? head : skip;
    PyObject *packet = same_object(each, head, skip);
    if (packet || !(packet = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(each->length - skip))))
        return packet;
    char *at = PyBytes_AS_STRING(packet);
    memcpy(at, each->stored + skip, head - skip);
    memcpy(at + head - skip, each->middle, each->missing);
    memcpy(at + head - skip + each->missing, each->stored + head, PF_TAIL_BYTES);
    return packet;
}

/* A list of (time_ns, place, packet, bytes missing in it). */
static PyObject *arrivals_of(const struct ferry *ferry, const struct pf_batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);
    for (uint64_t i = 0; list && i < batch->count; i++) {
        const struct pf_delivery *each = &batch->records[i];
        uint32_t bytes;
        int64_t place = place_of(ferry, (uint64_t)each->device_id << 32 | each->port);
        PyObject *time = PyLong_FromUnsignedLongLong(each->time_ns), *where = PyLong_FromLongLong(place);
        PyObject *packet = packet_of(each, ferry->skip, &bytes);
        PyObject *missing = PyLong_FromUnsignedLong(bytes);
        PyObject *arrival = time && where && packet && missing ? PyTuple_Pack(4, time, where, packet, missing) : NULL;
        Py_XDECREF(time);
        Py_XDECREF(where);
        Py_XDECREF(packet);
        Py_XDECREF(missing);
        if (!arrival)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, arrival);
    }
    return list;
}

static int take(struct ferry *ferry, PyObject *words, PyObject *parts, uint64_t *sends)
{
    if (!PyByteArray_Check(words) || !PyList_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "words are a bytearray, parts a list");
        return 0;
    }
    *sends = (uint64_t)PyByteArray_GET_SIZE(words) / sizeof(struct pf_send);
    return take_words(ferry, words) && take_pieces(ferry, parts, *sends);
}

static PyObject *found(const struct ferry *ferry, int result, uint64_t told, struct pf_batch *batch)
{
    if (result < 0)
        batch->count = 0;
    PyObject *arrivals = arrivals_of(ferry, batch);
    return arrivals ? Py_BuildValue("iKKKN", result, (unsigned long long)told, (unsigned long long)batch->now_ns,
                                    (unsigned long long)batch->known_ns, arrivals)
                    : NULL;
}

/* Drops the references of what no packet refers to any more. */
static void drop_returned(const struct ferry *ferry, struct fabric *f)
{
    void *owners[RETURNED_AT_ONCE];
    uint64_t count;
    do {
        count = ferry->calls.returned(f, owners, RETURNED_AT_ONCE, 0);
        for (uint64_t i = 0; i < count; i++)
            Py_DECREF((PyObject *)owners[i]);
    } while (count == RETURNED_AT_ONCE);
}

/* (result, told, now_ns, known_ns, arrivals) of pf_exchange. Python's lock is not held while the fabric runs or its lock
 * is waited for; the fabric's is until the arrivals are read. */
PyObject *ferry_exchange(struct ferry *ferry, struct fabric *f, PyObject *words, PyObject *parts, uint64_t limit_ns,
                         uint64_t foresee_ns)
{
    uint64_t sends, told = 0;
    if (!take(ferry, words, parts, &sends))
        return NULL;
    struct pf_batch batch = {0};
    int result;
    const Py_ssize_t count = PyList_GET_SIZE(parts);
    for (Py_ssize_t i = 0; i < count; i++)
        Py_INCREF((PyObject *)ferry->pieces[i].owner);
    Py_BEGIN_ALLOW_THREADS /* another thread may change the list */
    ferry->calls.lock(f);
    result = ferry->calls.exchange(f, ferry->ports, (const struct pf_send *)ferry->words, sends, ferry->pieces, limit_ns,
                                   foresee_ns, &told, &batch);
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) /* the fabric refers to those that are not named any more */
        Py_XDECREF((PyObject *)ferry->pieces[i].owner);
    PyObject *done = found(ferry, result, told, &batch);
    drop_returned(ferry, f);
    ferry->calls.unlock(f);
    return done;
}
