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
    ADDRESSES = 32,
    ADDRESSES_AT = 8,
    UDP_LENGTH_AT = IP + 4,
    UDP_CHECKSUM_AT = IP + 6,
    RESV8A_AT = IP + 12, /* of BTH */
    MASKED = 20,         /* bytes behind the IP header with those that the ICRC takes for ones */
    ICRC = 4,
    LONGEST_HEAD = 256,
    LENGTHS = 1 << 16,
};

/* CRCs are remainders of polynomials; in a uint32_t the coefficient of x^0 is the highest bit. */
static const uint32_t POLYNOMIAL = 0xEDB88320u;

/* For each UDP length: the power of x by which the CRC up to the masked bytes is multiplied, and what is added to the
 * product. A power of 0 has not been computed yet. Callers hold Python's lock.
 */
static struct {
    uint32_t power, rest;
} of_length[LENGTHS];

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

static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (; a; a <<= 1) {
        sum ^= b & -(a >> 31);
        b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
    }
    return sum;
}

/* Return x^(8 * bytes). */
static uint32_t power_of(size_t bytes)
{
    uint32_t power = 1u << 31, square = 1u << 23;
    for (; bytes; bytes >>= 1) {
        if (bytes & 1)
            power = product(power, square);
        square = product(square, square);
    }
    return power;
}

static uint32_t crc_of_zeros(size_t length)
{
    static uint8_t zeros[LENGTHS]; /* not constant, or 64 KiB of them were in the file */
    return mrc_crc32(0, zeros, length);
}

/* See framing.py's `icrc_constant`. What is masked is followed by zeros there, so the CRC up to them is multiplied by a
 * power of x. `length` is at least MASKED + ICRC and less than LENGTHS.
 */
static uint32_t constant_of(const uint8_t *addresses, uint32_t length)
{
    uint8_t first[8 + IP + MASKED] = {0};
    memset(first, 0xFF, 8 + 4);
    first[8] = 0x6F;
    put(first + 12, length, 2);
    first[14] = NEXT_HEADER;
    first[15] = 0xFF;
    memcpy(first + 16, addresses, ADDRESSES);
    first[8 + UDP_CHECKSUM_AT] = first[8 + UDP_CHECKSUM_AT + 1] = first[8 + RESV8A_AT] = 0xFF;
    if (!of_length[length].power) {
        size_t zeros = length - MASKED - ICRC;
        of_length[length].power = power_of(zeros);
        of_length[length].rest = crc_of_zeros(zeros) ^ crc_of_zeros(length - ICRC);
    }
    return product(of_length[length].power, mrc_crc32(0, first, sizeof first)) ^ of_length[length].rest;
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
    static const char sizes[128] = {['B'] = 1, ['H'] = 2, ['I'] = 4, ['Q'] = 8, ['b'] = 1, ['h'] = 2, ['i'] = 4};
    uint8_t *at = head;
    for (const char *code = form + 1; *code; code++) {
        size_t count = 0;
        for (; *code >= '0' && *code <= '9'; code++)
            count = 10 * count + (size_t)(*code - '0');
        if (at - head + (count ? count : 8) > LONGEST_HEAD) {
            PyErr_SetString(PyExc_ValueError, "the head of a packet is too long");
            return -1;
        }
        if (*code == 's') {
            PyObject *addresses = va_arg(values, PyObject *);
            memset(at, 0, count);
            memcpy(at, PyBytes_AS_STRING(addresses), Py_MIN(count, (size_t)PyBytes_GET_SIZE(addresses)));
            at += count;
        } else if (*code == 'x') {
            memset(at, 0, count ? count : 1);
            at += count ? count : 1;
        } else {
            uint64_t value;
            int size = sizes[*code & 0x7F];
            if (!number_of(va_arg(values, CPyTagged), size, *code >= 'a', &value)) {
                PyErr_Format(PyExc_OverflowError, "a value does not fit its field of %d bytes", size);
                return -1;
            }
            put(at, value, size);
            at += size;
        }
    }
    return at - head;
}

PyObject *mrc_packet(PyObject *form, PyObject *outer, PyObject *payload, CPyTagged offset, CPyTagged size, char absent,
                     ...)
{
    uint8_t head[LONGEST_HEAD];
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
    uint32_t crc = mrc_crc32(0, at + IP, (size_t)(length - IP + padded)) ^ constant_of(head + ADDRESSES_AT, udp_length);
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
    uint8_t first[MASKED];
    memcpy(first, ip + IP, MASKED);
    first[UDP_CHECKSUM_AT - IP] = first[UDP_CHECKSUM_AT + 1 - IP] = first[RESV8A_AT - IP] = 0;
    uint32_t crc = mrc_crc32(0, first, MASKED);
    crc = mrc_crc32(crc, ip + IP + MASKED, (size_t)(stored - IP - MASKED - ICRC));
    crc ^= constant_of(ip + ADDRESSES_AT, be16(ip + UDP_LENGTH_AT));
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
