/* Flow control of links: flow.c. */
#ifndef P4LITE_FLOW_H
#define P4LITE_FLOW_H

#include "link.h"

#define CREDIT_BLOCK 64u /* bytes */

bool pfc_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
void pfc_release(struct fabric *f, struct sw *s, const struct packet *p);
bool pfc_receive(struct fabric *f, struct port *in, struct packet *p);
struct packet *pfc_frame(struct fabric *f, struct port *q);
void pfc_link_lost(struct fabric *f, struct port *q);
int pfc_enable(struct fabric *f, struct port *q, uint32_t priority, const struct pf_pfc_settings *set);
void pfc_disable(struct fabric *f, struct pfc *pfc, uint32_t priority);
void pfc_free(struct fabric *f, struct port *q);
void pfc_read(const struct pfc *pfc, uint64_t now, struct pf_pfc_stats *stats);
void pfc_reset_stats(const struct fabric *f, struct port *q);

bool credits_short(const struct fabric *f, struct port *q, uint32_t priority, const struct packet *head);
bool credits_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
struct packet *credits_take(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
struct packet *credits_unstash(struct port *q, uint32_t *priority);
void credits_arrived(struct port *in, struct packet *p);
void credits_release(struct fabric *f, struct packet *p);
bool credits_receive(struct fabric *f, struct port *in, struct packet *p);
struct packet *credits_frame(struct fabric *f, struct port *q);
uint64_t credits_frame_time(struct port *q);
void credits_announce(struct fabric *f, struct port *q);
void credits_flush(struct fabric *f, struct port *q);
void credits_reset(struct fabric *f, struct port *q);
int credits_enable(struct fabric *f, struct port *q, uint32_t priority, const struct pf_credit_settings *set);
void credits_disable(struct fabric *f, struct credits *cr, uint32_t priority);
void credits_free(struct fabric *f, struct port *q);
void credits_read(const struct credits *cr, uint64_t now, struct pf_credit_stats *stats);
void credits_reset_stats(const struct fabric *f, struct port *q);

uint64_t host_sends(struct fabric *f, struct port *q, struct packet *p, uint64_t at);
void storm_update(struct fabric *f, struct port *q);
void storm_due(struct fabric *f, struct timer *t);

#endif
