/* Compiled form of frames.py; `python -m mrc_host.build` compiles it with the modules that call it. */
#define _GNU_SOURCE
#include "frames.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FAILED = -113, /* what a function of a machine word returns where it may have raised */
    NOT_OURS = -1,
    RX_MAC = 66, /* bytes before the Ethernet header of a received frame */
    HEADS = RX_MAC + ETH_HLEN,
    MACS = 2 * ETH_ALEN,
    ROUTE = sizeof(struct sockaddr_ll) + MACS,
    BATCH = 64, /* frames in a system call */
};

/* Return the header of the frame at a place; NULL where the ring is closed or has no such place. */
static struct tpacket2_hdr *frame_at(PyObject *ring, int64_t at)
{
    Py_buffer *view = PyMemoryView_Check(ring) ? PyMemoryView_GET_BUFFER(ring) : NULL;
    if (!view || ((PyMemoryViewObject *)ring)->flags & _Py_MEMORYVIEW_RELEASED || at < 0 || at > view->len - HEADS) {
        PyErr_SetString(PyExc_ValueError, "no frame of an open ring is there");
        return NULL;
    }
    return (struct tpacket2_hdr *)((uint8_t *)view->buf + at);
}

int64_t mrc_arrival(PyObject *ring, int64_t at)
{
    const struct tpacket2_hdr *frame = frame_at(ring, at);
    if (!frame)
        return FAILED;
    /* Acquire: the frame is read after the status that says that the kernel has written it. */
    if (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
        return 0;
    uint16_t kind;
    memcpy(&kind, (const uint8_t *)frame + RX_MAC + MACS, sizeof kind);
    kind = ntohs(kind);
    if (frame->tp_snaplen <= ETH_HLEN || (kind != ETHERTYPE_IPV6 && kind != ETHERTYPE_IP && kind != 0x8808))
        return NOT_OURS;
    return (int64_t)frame->tp_sec * 1000000000 + frame->tp_nsec;
}

PyObject *mrc_take(PyObject *ring, int64_t at)
{
    struct tpacket2_hdr *frame = frame_at(ring, at);
    if (!frame)
        return NULL;
    Py_ssize_t room = PyMemoryView_GET_BUFFER(ring)->len - at - HEADS, size = (Py_ssize_t)frame->tp_snaplen - ETH_HLEN;
    PyObject *packet = PyBytes_FromStringAndSize((const char *)frame + HEADS, Py_MAX(Py_MIN(size, room), 0));
    /* Release: the frame is read before the kernel sees that it may overwrite it. */
    __atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    return packet;
}

/* Send frames; return how many were lost at an interface that is down, gone or full, or too short for them. */
static int64_t flush(int descriptor, struct mmsghdr *messages, unsigned count)
{
    int64_t lost = 0;
    for (unsigned sent = 0; sent < count;) {
        int done = sendmmsg(descriptor, messages + sent, count - sent, MSG_DONTWAIT);
        if (done >= 0) {
            sent += (unsigned)done;
            continue;
        }
        switch (errno) {
        case EINTR:
            break;
        case ENETDOWN:
        case ENXIO:
        case ENODEV:
        case ENOBUFS:
        case EAGAIN:
        case ENETUNREACH:
        case EMSGSIZE:
            lost++;
            sent++;
            break;
        default:
            PyErr_SetFromErrno(PyExc_OSError);
            return FAILED;
        }
    }
    return lost;
}

int64_t mrc_send(int64_t descriptor, PyObject *routes, PyObject *packets)
{
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH][2];
    uint8_t heads[BATCH][ETH_HLEN];
    unsigned queued = 0;
    int64_t lost = 0;
    for (Py_ssize_t port = 0; port < PyList_GET_SIZE(packets); port++) {
        PyObject *through = PyList_GET_ITEM(packets, port);
        PyObject *route = port < PyList_GET_SIZE(routes) ? PyList_GET_ITEM(routes, port) : NULL;
        if (!route || !PyBytes_Check(route) || PyBytes_GET_SIZE(route) != ROUTE || !PyList_Check(through)) {
            PyErr_SetString(PyExc_ValueError, "packets without a route");
            return FAILED;
        }
        for (Py_ssize_t number = 0; number < PyList_GET_SIZE(through); number++) {
            PyObject *packet = PyList_GET_ITEM(through, number);
            if (!PyBytes_Check(packet) || !PyBytes_GET_SIZE(packet)) {
                PyErr_SetString(PyExc_ValueError, "a packet is bytes, at least one");
                return FAILED;
            }
            uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(packet), *way = (uint8_t *)PyBytes_AS_STRING(route);
            uint16_t kind = htons(bytes[0] >> 4 == 4 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
            memcpy(heads[queued], way + sizeof(struct sockaddr_ll), MACS);
            memcpy(heads[queued] + MACS, &kind, sizeof kind);
            parts[queued][0] = (struct iovec){heads[queued], ETH_HLEN};
            parts[queued][1] = (struct iovec){bytes, (size_t)PyBytes_GET_SIZE(packet)};
            messages[queued].msg_hdr = (struct msghdr){
                .msg_name = way, .msg_namelen = sizeof(struct sockaddr_ll), .msg_iov = parts[queued], .msg_iovlen = 2};
            queued++;
            if (queued < BATCH)
                continue;
            int64_t failed = flush((int)descriptor, messages, queued);
            if (failed == FAILED)
                return FAILED;
            lost += failed;
            queued = 0;
        }
    }
    int64_t failed = flush((int)descriptor, messages, queued);
    return failed == FAILED ? FAILED : lost + failed;
}
