/* What the parts of `mrc_ctl.h` share: refusals, and profiles, of which the agent holds all state. */
#ifndef LIBMRC_CTL_H
#define LIBMRC_CTL_H

#include "control.h"
#include "internal.h"
#include "mrc_ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define NAME_BYTES 32
#define KNOWN(mask, all) (!((unsigned int)(mask) & ~(unsigned int)(all)))

/* A profile as the agent has it. `settings` are NULL where it has none of this number. */
struct profile {
	const char *device;
	const char *kind;
	char name[NAME_BYTES];
	enum mrc_ctl_profile_state state;
	const struct json *settings;
	struct control_answer answer;
};

static inline int ctl_fail(int number)
{
	if (!number)
		return 0;
	errno = number;
	return -1;
}

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

static inline int ctl_no_vendor(const char *function)
{
	say("%s: there is no vendor, and no configuration of one", function);
	return EOPNOTSUPP;
}

/* Names of congestion control algorithms; NULL ends them. */
extern const char *const ctl_algorithms[];

/* Return the bits of the names that an agent has told. */
uint32_t ctl_mask_of(const struct json *names, const char *const *known);

/* ctl_evs.c */
struct mrc_ctl_ev ctl_ev_of(uint64_t number, uint64_t plane);
int ctl_write_entry(struct writer *writer, const char *key, const struct mrc_ctl_ev *ev);

/* ctl_profiles.c */
void ctl_name_profile(char *name, uint64_t id);
uint64_t ctl_id_of(const char *name);
int ctl_read_profile(struct profile *profile);
int ctl_find_profile(struct profile *profile, const struct mrc_context *context, const char *kind, uint64_t id);
bool ctl_has(const struct profile *profile, const char *key, bool now);
void ctl_begin_profile(struct writer *writer, const char *verb, const struct profile *profile);
void ctl_begin_settings(struct writer *writer, const struct profile *profile);
int ctl_end_settings(struct writer *writer, const struct profile *profile);
int ctl_set_state(const struct profile *profile, enum mrc_ctl_profile_state state);
int ctl_check_states(const struct profile *profile, bool is, enum mrc_ctl_profile_state current, bool to,
			enum mrc_ctl_profile_state wanted);
bool ctl_is_first(enum mrc_ctl_profile_state wanted);
int ctl_query_details(const struct profile *profile, struct control_answer *answer);

#endif
