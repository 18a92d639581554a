/* Parser, ingress, egress and deparser of one program in a loop, without queues or clocks.
 *     pipeline_loop PACKETS
 * Every packet takes the whole way, also one that ingress drops. Prints nanoseconds per packet and the PHV's size. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const struct p4_program *p4lite_program(void);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    long packets = argc > 1 ? atol(argv[1]) : 1000000;
    const struct p4_program *p = p4lite_program();
    struct p4_config config = {.seed = 1};
    struct p4_instance *in = p->create(&config);
    struct p4_phv *phv = aligned_alloc(64, (p->phv_size + 63u) / 64 * 64);
    static uint8_t out[1 << 16];
    if (!in || !phv)
        return 2;
    p->phv_init(phv);
    fuzz_load((struct p4_state *)(void *)in, 0);
    double start = now();
    for (long i = 0; i < packets; i++) {
        const struct fuzz_template *t = &fuzz_template[(uint32_t)i % fuzz_templates];
        p->phv_reset(phv);
        phv->packet_length = phv->ingress_length = t->length;
        p4_set(p, phv, P4F_INGRESS_PORT, (uint64_t)i & 7);
        p->parse(in, phv, t->data, t->length);
        p->ingress(in, phv);
        p->egress(in, phv);
        const uint8_t *payload = t->data + phv->payload_offset;
        uint32_t rest = t->length - phv->payload_offset;
        int64_t headers = p->deparse(in, phv, payload, rest, out, sizeof out);
        memcpy(out + headers, payload, rest);
    }
    double elapsed = now() - start;
    printf("%.1f %u\n", elapsed / (double)packets * 1e9, p->phv_size);
    p->destroy(in);
    free(phv);
    return 0;
}
