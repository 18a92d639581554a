/* Links: link.c. */
#ifndef P4LITE_LINK_H
#define P4LITE_LINK_H

#include "base.h"

void linkdir_init(struct fabric *f, struct linkdir *d, struct port *owner, struct port *to);
void linkdir_set(struct linkdir *d, const struct pf_link_settings *set);
void linkdir_cut(struct fabric *f, struct linkdir *d, enum pf_port_drop why);
uint64_t linkdir_serialise(struct linkdir *d, uint64_t *rest, uint32_t len);
void linkdir_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t leaves, bool aside);
uint64_t linkdir_carries(const struct linkdir *d); /* packets now */
uint64_t linkdir_host_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t at);
void lookahead_update(struct fabric *f);

#endif
