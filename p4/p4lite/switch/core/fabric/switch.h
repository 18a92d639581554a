/* Switches: switch.c. */
#ifndef P4LITE_SWITCH_H
#define P4LITE_SWITCH_H

#include "flow.h"

bool reserve(void **array, uint32_t *size, uint64_t index, size_t element);
struct port *switch_port(struct sw *s, uint32_t number);
void target_receive(struct fabric *f, struct port *in, struct packet *p);
void port_take_in(struct fabric *f, struct port *q, struct packet *p, uint64_t at);
void port_due(struct fabric *f, struct timer *t);
void port_rate_changed(struct fabric *f, struct port *q, uint64_t old_rate);
void port_flush(struct fabric *f, struct port *q);
void drain(struct fabric *f);
void source_due(struct fabric *f, struct timer *t);
void source_free(struct fabric *f, struct source *s);

#endif
