/* What AF_PACKET can do on this machine, to compare the switch with:
 *   forwarder forward IN OUT            recvmmsg/sendmmsg from IN to OUT until killed
 *   forwarder source IF SIZE SECONDS    frames of SIZE bytes to IF as fast as it takes them, by AF_XDP where the kernel
 *                                       can: sendmmsg costs the source more than the forwarder, which would wait
 * The sink is the kernel: frames without a receiver that reach the last interface count in its rx_packets. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "fabric.h"
#include "xdp.h"

#define BATCH 64
#define FRAME 2048

static unsigned char frames[BATCH][FRAME];
static struct mmsghdr messages[BATCH];
static struct iovec vectors[BATCH];

static int open_port(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    unsigned index = if_nametoindex(name);
    if (fd < 0 || index == 0) {
        fprintf(stderr, "forwarder: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    int one = 1, buffer = 8 << 20;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) != 0) {
        fprintf(stderr, "forwarder: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return fd;
}

static void prepare(unsigned length)
{
    for (int i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){frames[i], length};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
}

static void forward(const char *from, const char *to)
{
    int in = open_port(from), out = open_port(to);
    for (;;) {
        prepare(FRAME);
        int count = recvmmsg(in, messages, BATCH, MSG_WAITFORONE, NULL);
        if (count < 0) {
            if (errno == EINTR || errno == ENETDOWN)
                continue;
            return;
        }
        for (int i = 0; i < count; i++)
            vectors[i].iov_len = messages[i].msg_len;
        for (int sent = 0; sent < count;) {
            int done = sendmmsg(out, messages + sent, (unsigned)(count - sent), 0);
            sent += done > 0 ? done : 1;
        }
    }
}

static void source(const char *to, unsigned size, double seconds)
{
    static const unsigned char head[] = {2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17,
                                         0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 26, 0, 0};
    int fd = open_port(to);
    struct timespec start, now;
    struct xdp *fast = NULL;
    if (xdp_open((int)if_nametoindex(to), FRAME - 18, &fast) != PF_OK)
        fputs("forwarder: no AF_XDP; the source sends by sendmmsg, which is slower\n", stderr);
    for (int i = 0; i < BATCH; i++)
        memcpy(frames[i], head, sizeof head);
    prepare(size);
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; fast && i < BATCH; i++)
            xdp_put(fast, frames[i], size);
        if (fast) {
            xdp_flush(fast);
        } else if (sendmmsg(fd, messages, BATCH, 0) < 0 && errno != ENOBUFS && errno != EAGAIN) {
            fprintf(stderr, "forwarder: %s: %s\n", to, strerror(errno));
            exit(1);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < seconds);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "forward") == 0) {
        forward(argv[2], argv[3]);
        return 1;
    }
    if (argc == 5 && strcmp(argv[1], "source") == 0 && atoi(argv[3]) >= 60 && atoi(argv[3]) <= FRAME) {
        source(argv[2], (unsigned)atoi(argv[3]), atof(argv[4]));
        return 0;
    }
    fputs("usage: forwarder forward IN OUT | forwarder source IF SIZE SECONDS\n", stderr);
    return 2;
}
