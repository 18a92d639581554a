/* What both parts of `mrc_ctl.h` share: refusals, and the forms of EVs. */
#ifndef LIBMRC_CTL_H
#define LIBMRC_CTL_H

#include "internal.h"
#include "mrc_ctl.h"

#define KNOWN(mask, all) (!((unsigned int)(mask) & ~(unsigned int)(all)))
/* A request to the control socket, like `REQUEST`. */
#define COMMAND(verb, format, ...) json_pack("{ss" format "}", "verb", verb, ##__VA_ARGS__)

static inline const char *ctl_device_of(const struct mrc_context *context)
{
	return context->lab->device->path;
}

/* Refuse what this library knows to be wrong, with a reason; returns EINVAL. */
static inline int ctl_wrong(const char *reason)
{
	say("%s", reason);
	return EINVAL;
}

/* ctl_profiles.c. Names of congestion control algorithms; NULL ends them. */
extern const char *const ctl_algorithms[];
/* Return the bits of the names that an agent has told. */
uint32_t ctl_mask_of(const json_t *names, const char *const *known);
struct mrc_ctl_ev ctl_ev_of(uint64_t number, uint64_t plane);
/* Write an EV as the agent takes it, `[number, plane]`; 0, or EINVAL. */
int ctl_entry_of(const struct mrc_ctl_ev *ev, json_t **entry);

#endif
