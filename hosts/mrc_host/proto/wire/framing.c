/* Compiled form of framing.py, which says what these functions do; `python -m mrc_host.build` compiles it with the
 * modules that call it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdarg.h>
#include <string.h>

#include "crc32.h"
#include "framing.h"

enum {
    IP = 40,           /* bytes of an IPv6 header */
    NEXT_HEADER = 17,  /* UDP */
    UDP_LENGTH_AT = IP + 4,
    UDP_CHECKSUM_AT = IP + 6,
    RESV8A_AT = IP + 12, /* of BTH */
    MASKED = 20,         /* bytes behind the IP header with those that the ICRC takes for ones */
    ICRC = 4,
    LONGEST_HEAD = 256,
};

static uint32_t be16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

/* Write the lowest `size` bytes of a number, the most significant first. */
static void put(uint8_t *at, uint64_t value, int size)
{
    while (size--) {
        at[size] = (uint8_t)value;
        value >>= 8;
    }
}

/* Return the ICRC of the packet whose IP header is at `ip`, with `more` bytes between BTH's masked part and the ICRC:
 * see framing.py's `icrc_constant`.
 *
 * The CRC is fastest over multiples of 16 bytes. So the masked part is copied with the odd bytes behind it, or with all
 * that follow where these are few, and zeros before it, which do not change a register of zeros. A register of ones and
 * eight bytes of ones are one of zeros, four bytes of zeros, and four of ones.
 */
static uint32_t icrc_of(const uint8_t *ip, size_t more)
{
    size_t copied = more > LONGEST_HEAD ? more % 16 : more;
    size_t pad = -(8 + IP + MASKED + copied) % 16;
    uint8_t first[16 + 8 + IP + MASKED + LONGEST_HEAD], *masked = first + pad + 8;
    memset(first, 0, 16 + 4);
    memset(masked - 4, 0xFF, 8);
    masked[4] = ip[UDP_LENGTH_AT];
    masked[5] = ip[UDP_LENGTH_AT + 1];
    masked[6] = NEXT_HEADER;
    masked[7] = 0xFF;
    memcpy(masked + 8, ip + 8, IP + MASKED - 8 + copied);
    masked[0] = 0x6F;
    masked[UDP_CHECKSUM_AT] = masked[UDP_CHECKSUM_AT + 1] = masked[RESV8A_AT] = 0xFF;
    uint32_t crc = mrc_crc32(UINT32_MAX, first, pad + 8 + IP + MASKED + copied);
    return more > copied ? mrc_crc32(crc, ip + IP + MASKED + copied, more - copied) : crc;
}

/* Set `value` to an int, in two's complement; return whether it fits an unsigned or signed field of `size` bytes. */
static int number_of(CPyTagged tagged, int size, int is_signed, uint64_t *value)
{
    if (tagged & 1) {
        /* Beyond 62 bits, which no signed field has. */
        *value = PyLong_AsUnsignedLongLong((PyObject *)(tagged & ~(CPyTagged)1));
        if (*value == (uint64_t)-1 && PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        return size == 8 && !is_signed;
    }
    int64_t number = (int64_t)tagged >> 1;
    *value = (uint64_t)number;
    if (is_signed) {
        int64_t limit = (int64_t)1 << (8 * size - 1);
        return number >= -limit && number < limit;
    }
    return number >= 0 && (size == 8 || number >> 8 * size == 0);
}

/* Write the head of a packet, of at most LONGEST_HEAD bytes; return its size, or -1. */
static Py_ssize_t write_head(uint8_t *head, const char *form, va_list values)
{
    /* Bytes, and the bits of a CPyTagged of which none is set where the value surely fits. */
    static const struct {
        uint64_t doubtful;
        int size;
    } kinds[128] = {
        ['B'] = {~(uint64_t)0x1FE, 1},       ['b'] = {~(uint64_t)0xFE, 1},
        ['H'] = {~(uint64_t)0x1FFFE, 2},     ['h'] = {~(uint64_t)0xFFFE, 2},
        ['I'] = {~(uint64_t)0x1FFFFFFFE, 4}, ['i'] = {~(uint64_t)0xFFFFFFFE, 4},
        ['Q'] = {(uint64_t)1 << 63 | 1, 8},
    };
    uint8_t *at = head;
    const char *code = form + 1;
    for (; *code; code++) {
        int size = kinds[*code & 0x7F].size;
        size_t count = (size_t)size;
        if (size) {
            CPyTagged tagged = va_arg(values, CPyTagged);
            uint64_t value = tagged >> 1;
            if (tagged & kinds[*code & 0x7F].doubtful && !number_of(tagged, size, *code >= 'a', &value)) {
                PyErr_Format(PyExc_OverflowError, "a value does not fit its field of %d bytes", size);
                return -1;
            }
            value = mrc_big_endian(value << (64 - 8 * size));
            memcpy(at, &value, sizeof value); /* what follows is overwritten */
        } else {
            for (; *code >= '0' && *code <= '9'; code++)
                count = 10 * count + (size_t)(*code - '0');
            count += *code == 'x' && !count;
            if (count > (size_t)(head + LONGEST_HEAD - at))
                break;
            memset(at, 0, count);
            if (*code == 's') {
                PyObject *addresses = va_arg(values, PyObject *);
                memcpy(at, PyBytes_AS_STRING(addresses), Py_MIN(count, (size_t)PyBytes_GET_SIZE(addresses)));
            }
        }
        at += count;
        if (at > head + LONGEST_HEAD)
            break;
    }
    if (*code) {
        PyErr_SetString(PyExc_ValueError, "the head of a packet is too long");
        return -1;
    }
    return at - head;
}

PyObject *mrc_packet(PyObject *form, PyObject *outer, PyObject *payload, CPyTagged offset, CPyTagged size, char absent,
                     ...)
{
    uint8_t head[LONGEST_HEAD + 8]; /* numbers are written as if they had 8 bytes */
    va_list values;
    va_start(values, absent);
    Py_ssize_t length = write_head(head, PyBytes_AS_STRING(form), values);
    va_end(values);
    if (length < 0)
        return NULL;
    uint32_t udp_length = be16(head + UDP_LENGTH_AT);
    if (length < IP + MASKED || udp_length < MASKED + ICRC) {
        PyErr_SetString(PyExc_ValueError, "a head has IPv6, UDP and BTH");
        return NULL;
    }
    Py_ssize_t begin = (Py_ssize_t)offset >> 1, bytes = (Py_ssize_t)size >> 1, around = PyBytes_GET_SIZE(outer);
    Py_ssize_t padded = absent ? 0 : (bytes + 3) & ~(Py_ssize_t)3;
    PyObject *packet = PyBytes_FromStringAndSize(NULL, around + length + padded + ICRC);
    if (packet == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(packet);
    if (around) {
        memcpy(at, PyBytes_AS_STRING(outer), (size_t)around);
        memcpy(at, head, 4);
        put(at + 4, (uint64_t)(around + udp_length), 2);
        at += around;
    }
    memcpy(at, head, (size_t)length);
    if (padded) {
        Py_buffer source;
        if (PyObject_GetBuffer(payload, &source, PyBUF_SIMPLE) < 0) {
            Py_DECREF(packet);
            return NULL;
        }
        if (begin < 0 || bytes > source.len - begin) {
            PyBuffer_Release(&source);
            Py_DECREF(packet);
            PyErr_SetString(PyExc_ValueError, "the payload is shorter than the packet says");
            return NULL;
        }
        memcpy(at + length, (const uint8_t *)source.buf + begin, (size_t)bytes);
        PyBuffer_Release(&source);
        memset(at + length + bytes, 0, (size_t)(padded - bytes));
    }
    uint32_t crc = icrc_of(at, (size_t)(length - IP - MASKED + padded));
    at += length + padded;
    for (int byte = 0; byte < ICRC; byte++)
        at[byte] = (uint8_t)(crc >> 8 * byte);
    return packet;
}

char mrc_sealed(PyObject *packet, int64_t at, int64_t missing)
{
    const uint8_t *ip = (const uint8_t *)PyBytes_AS_STRING(packet) + at;
    int64_t stored = PyBytes_GET_SIZE(packet) - at;
    if (at < 0 || stored < IP + MASKED + ICRC || be16(ip + UDP_LENGTH_AT) != stored + missing - IP) {
        PyErr_SetString(PyExc_ValueError, "not a whole packet with its ICRC");
        return 2;
    }
    uint32_t crc = icrc_of(ip, (size_t)(stored - IP - MASKED - ICRC));
    for (int byte = 0; byte < ICRC; byte++)
        if (ip[stored - ICRC + byte] != (uint8_t)(crc >> 8 * byte))
            return 0;
    return 1;
}

char mrc_append_words(PyObject *buffer, int64_t first, int64_t second, int64_t third, int64_t fourth)
{
    const int64_t words[4] = {first, second, third, fourth};
    if (!PyByteArray_Check(buffer)) {
        PyErr_SetString(PyExc_TypeError, "words are appended to a bytearray");
        return 2;
    }
    Py_ssize_t size = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, size + (Py_ssize_t)sizeof words) < 0)
        return 2;
    memcpy(PyByteArray_AS_STRING(buffer) + size, words, sizeof words);
    return 1;
}
