/* What fuzz.py generates for fuzz_main.c. */
#ifndef P4LITE_FUZZ_H
#define P4LITE_FUZZ_H

#include "instance.h"

struct fuzz_template {
    const uint8_t *data;
    uint32_t length;
};

extern const struct fuzz_template fuzz_template[];
extern const uint32_t fuzz_templates;

/* Adds a share of random entries to the tables and deletes others; `round` varies them. */
void fuzz_load(struct p4_state *in, uint32_t round);

#endif
