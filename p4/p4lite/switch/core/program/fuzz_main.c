/* Throws random packets at a program: templates from the parser's states, mutated, cut and extended, and plain
 * noise of every length; with tables filled by fuzz_load() and now and then an entry changed. Meant for a sanitizer
 * build: a finding ends the process. The program is linked in.
 *     fuzz FRAMES SEED
 * It checks what can be checked of any program: lengths agree, a copied PHV deparses alike, and a PHV that was reset
 * is as fresh (a packet must not see its predecessor). */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct p4_program *p4lite_program(void);

#define MAX_FRAME 9600u

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(draw() >> 16) % n;
}

static uint32_t make_frame(uint8_t *frame, uint64_t number)
{
    uint32_t n = 0;
    if (fuzz_templates > 0 && below(8) != 0) {
        const struct fuzz_template *t = &fuzz_template[below(fuzz_templates)];
        n = t->length < MAX_FRAME ? t->length : MAX_FRAME;
        memcpy(frame, t->data, n);
        for (uint32_t i = below(4); i > 0 && n > 0; i--)
            frame[below(n)] = (uint8_t)draw();
        if (below(4) == 0)
            n = below(n + 1);
        else if (below(4) == 0)
            for (uint32_t more = below(64); more > 0 && n < MAX_FRAME; more--)
                frame[n++] = (uint8_t)draw();
        return n;
    }
    n = below(64) == 0 ? below(MAX_FRAME + 1) : (uint32_t)(number % 512);
    for (uint32_t i = 0; i < n; i++)
        frame[i] = (uint8_t)draw();
    return n;
}

static void fail(const char *what, uint64_t number)
{
    fprintf(stderr, "frame %" PRIu64 ": %s\n", number, what);
    abort();
}

static void run(const struct p4_program *p, struct p4_instance *in, struct p4_phv *phv, struct p4_phv *copy,
                const uint8_t *frame, uint32_t n, uint64_t number)
{
    static uint8_t out[1 << 17], again[1 << 17];
    p->phv_reset(phv);
    phv->packet_length = phv->ingress_length = n;
    p4_set(p, phv, P4F_INGRESS_PORT, below(512));
    p4_set(p, phv, P4F_INSTANCE_TYPE, below(7));
    p->parse(in, phv, frame, n);
    if (phv->payload_offset > n)
        fail("the parser ran beyond the packet", number);
    p4_set(p, phv, P4F_PARSER_ERROR, phv->parser_error);
    p->ingress(in, phv);
    if (phv->digest)
        p->digest(phv->digest, phv, out, sizeof out);
    p->phv_copy(copy, phv);
    if (below(16) == 0) {
        p->reset_metadata(copy);
        p->copy_field_list(phv->clone_field_list, copy, phv);
        p->phv_copy(phv, copy);
    }
    p->egress(in, phv);
    const uint8_t *payload = frame + phv->payload_offset;
    uint32_t rest = n - phv->payload_offset;
    uint32_t length = p->header_length(phv);
    if (length > p->max_header_bytes)
        fail("more header bytes than possible", number);
    if (length > 0 && p->deparse(in, phv, payload, rest, out, length - 1) != -1)
        fail("deparsed into too little room", number);
    p->phv_copy(copy, phv);
    int64_t made = p->deparse(in, phv, payload, rest, out, sizeof out);
    if (made < 0)
        fail("not deparsed", number);
    if (p->deparse(in, copy, payload, rest, again, sizeof again) != made || memcmp(out, again, (size_t)made) != 0)
        fail("a copy deparses differently", number);
    p->phv_reset(phv);
    memset(copy, 0, p->phv_size);
    copy->truncate_to = P4_NO_TRUNCATE;
    if (memcmp(phv, copy, p->phv_size) != 0)
        fail("a reset leaves something behind", number);
}

int main(int argc, char **argv)
{
    uint64_t frames = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    const struct p4_program *p = p4lite_program();
    struct p4_config config = {.seed = seed};
    struct p4_instance *in = p->create(&config);
    size_t size = (p->phv_size + 63u) / 64 * 64;
    struct p4_phv *phv = aligned_alloc(64, size), *copy = aligned_alloc(64, size);
    uint8_t *buffer = malloc(MAX_FRAME);
    if (!in || !phv || !copy || !buffer)
        return 2;
    p->phv_init(phv);
    p->phv_init(copy);
    fuzz_load((struct p4_state *)(void *)in, 0);
    for (uint64_t i = 0; i < frames; i++) {
        uint32_t n = make_frame(buffer, i);
        uint8_t *frame = malloc(n + 1); /* the exact size, so that reading beyond it is found */
        if (!frame)
            return 2;
        frame = realloc(frame, n ? n : 1);
        memcpy(frame, buffer, n);
        in->now_ns += below(2000);
        run(p, in, phv, copy, frame, n, i);
        free(frame);
        if (i % 5000 == 4999)
            fuzz_load((struct p4_state *)(void *)in, (uint32_t)(i / 5000));
        if (i % 50000 == 49999) {
            p->restart(in);
            fuzz_load((struct p4_state *)(void *)in, 0);
        }
    }
    p->destroy(in);
    free(phv);
    free(copy);
    free(buffer);
    printf("%" PRIu64 " frames, no finding\n", frames);
    return 0;
}
