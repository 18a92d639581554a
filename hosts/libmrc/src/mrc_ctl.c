/*
 * The functions of `mrc_ctl.h`, by requests to the agent's control socket.
 *
 * Profile N is the agent's profile `c-N`, and profile 0 its default one. The agent holds all state, so that several
 * controllers see the same; a profile that it does not have is in INIT.
 */
#include "control.h"
#include "internal.h"
#include "mrc_ctl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define NAME_BYTES 32
#define MAX_DSCP 63
#define PROBE_POLL_NS 1000000
#define EVENT_BYTES_1_0_0 offsetof(struct mrc_ctl_ev_event, state)
#define KNOWN(mask, all) (!((unsigned int)(mask) & ~(unsigned int)(all)))

_Static_assert(sizeof(struct mrc_ctl_ev_event) == 56, "an event has 56 bytes since version 1.0.1");
_Static_assert(EVENT_BYTES_1_0_0 == 48, "an event has 48 bytes in version 1.0.0");

static int fail(int number)
{
	if (!number)
		return 0;
	errno = number;
	return -1;
}

static const char *device_of(const struct mrc_context *context)
{
	return context->lab->device->path;
}

/* Refuse what this library knows to be wrong, with a reason; returns EINVAL. */
static int wrong(const char *reason)
{
	say("%s", reason);
	return EINVAL;
}

static int no_vendor(const char *function)
{
	say("%s: there is no vendor, and no configuration of one", function);
	return EOPNOTSUPP;
}

/* -- the device --------------------------------------------------------------------------------------------------- */

static const char *const known_algorithms[] = {"uet-1.0-nscc", NULL};

static uint32_t mask_of(const struct json *names, const char *const *known)
{
	uint32_t mask = 0;

	for (const struct json *each = names ? names->first : NULL; each; each = each->next)
		for (unsigned int i = 0; known[i]; i++)
			if (each->type == JSON_STRING && !strcmp(each->text, known[i]))
				mask |= 1U << i;
	return mask;
}

static int query_device(struct lab_context *lab, struct mrc_ctl_device_attr *attr)
{
	/* In the order of their bits; both formats of SRv6 have the same one. */
	static const char *const formats[] = {"STEV32", "SRV6_USID128", "UDP16", NULL};
	static const char *const modes[] = {"AUTO", "EXPLICIT", "GENERATED", NULL};
	struct control_answer answer;
	struct writer writer;
	uint64_t most;
	int failed;

	control_begin(&writer, "device");
	failed = control_ask(lab->device->path, &writer, &answer);
	if (failed)
		return failed;
	memset(attr, 0, sizeof(*attr));
	attr->mrc_ctl_protocol_version = (uint32_t)json_number(answer.root, "mrc_ctl_protocol_version", 0);
	most = json_number(answer.root, "max_profiles", 0);
	attr->ev.ev_max_fmt_profiles = (uint32_t)most;
	attr->ev.ev_max_profiles = (uint32_t)most;
	attr->ev.ev_max_count_profile = (uint32_t)json_number(answer.root, "ev_max_count_profile", 0);
	attr->ev.ev_max_count = (uint32_t)most * attr->ev.ev_max_count_profile;
	attr->ev.ev_free_count = (uint32_t)json_number(answer.root, "free_evs", 0);
	/* Every plane has equally many. */
	attr->ev.ev_count_align = (uint32_t)json_count(json_get(answer.root, "ports"));
	attr->ev.ev_max_width = 32;
	attr->ev.ev_fmt_mode_mask = mask_of(json_get(answer.root, "ev_formats"), formats);
	attr->ev.ev_mode_mask = mask_of(json_get(answer.root, "ev_modes"), modes);
	attr->cc.cc_max_profiles = (uint32_t)most;
	attr->cc.algorithms = (const char **)known_algorithms;
	attr->phy_port_mask = (uint32_t)json_number(answer.root, "phy_port_mask", 0);
	attr->opt_attr = MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE | MRC_CTL_OPT_CAP_EV_EVENT |
			 MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT | MRC_CTL_OPT_CAP_EP_OP_EV_PROBE;
	control_free(&answer);
	return 0;
}

EXPORT int mrc_ctl_query_device_ex(struct ibv_context *base, struct mrc_context *mcontext,
				   struct mrc_ctl_device_attr *attr, int *supported)
{
	if (!base && mcontext)
		base = &mcontext->lab->verbs.context;
	if (!base || !attr || !supported)
		return fail(EINVAL);
	*supported = 0;
	memset(attr, 0, sizeof(*attr));
	if (!is_lab(base) || !lab_of(base)->mrc)
		return 0;
	*supported = 1;
	return fail(query_device(lab_of(base), attr));
}

EXPORT int mrc_ctl_query_device(struct ibv_context *base, struct mrc_ctl_device_attr *attr)
{
	if (!base || !attr)
		return fail(EINVAL);
	if (!is_lab(base) || !lab_of(base)->mrc)
		return fail(EOPNOTSUPP);
	return fail(query_device(lab_of(base), attr));
}

EXPORT void mrc_ctl_query_version(uint32_t *current, uint32_t *last, uint32_t *vendor, uint32_t *last_vendor)
{
	if (current)
		*current = MRC_CTL_API_CURRENT_VERSION;
	if (last)
		*last = MRC_CTL_API_LAST_SUPPORTED_VERSION;
	if (vendor)
		*vendor = MRC_CTL_VENDOR_API_CURRENT_VERSION;
	if (last_vendor)
		*last_vendor = MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION;
}

/* -- ports -------------------------------------------------------------------------------------------------------- */

EXPORT int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
	struct control_answer answer;
	struct writer writer;
	const struct json *row;
	int failed;

	if (!context || !attr || !KNOWN(mask, MRC_CTL_PORT_ADMIN_STATE))
		return fail(EINVAL);
	control_begin(&writer, "device");
	failed = control_ask(device_of(context), &writer, &answer);
	if (failed)
		return fail(failed);
	row = json_get(answer.root, "ports");
	row = row && port ? row->first : NULL;
	for (unsigned int i = 1; row && i < port; i++)
		row = row->next;
	if (!row)
		failed = wrong("mrc_ctl_query_port: the host has no such port");
	else if (mask & MRC_CTL_PORT_ADMIN_STATE)
		attr->port_admin_state =
			json_bool(row, "enabled", true) ? MRC_CTL_PORT_ADMIN_ENABLED : MRC_CTL_PORT_ADMIN_DISABLED;
	control_free(&answer);
	return fail(failed);
}

EXPORT int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
	struct mrc_ctl_port_attr before;
	struct writer writer;

	if (!context || !attr || !KNOWN(mask, MRC_CTL_PORT_ADMIN_STATE))
		return fail(EINVAL);
	if (mask & MRC_CTL_PORT_ADMIN_STATE && (unsigned int)attr->port_admin_state > MRC_CTL_PORT_ADMIN_ENABLED)
		return fail(EINVAL);
	if (mrc_ctl_query_port(context, port, &before, mask))
		return -1;
	if (!mask)
		return 0;
	control_begin(&writer, "port");
	write_number(&writer, "port", (uint64_t)port - 1);
	write_bool(&writer, "up", attr->port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED);
	return fail(control_ask(device_of(context), &writer, NULL));
}

/* -- profiles of all kinds ---------------------------------------------------------------------------------------- */

static const char *const state_names[] = {"INIT", "OFFLINE", "ONLINE"};

/* A profile as the agent has it. `settings` are NULL where it has none of this number. */
struct profile {
	const char *device;
	const char *kind;
	char name[NAME_BYTES];
	enum mrc_ctl_profile_state state;
	const struct json *settings;
	struct control_answer answer;
};

static void name_profile(char *name, uint64_t id)
{
	if (id)
		snprintf(name, NAME_BYTES, "c-%llu", (unsigned long long)id);
	else
		strcpy(name, "default");
}

static uint64_t id_of(const char *name)
{
	return name && !strncmp(name, "c-", 2) ? strtoull(name + 2, NULL, 10) : 0;
}

/* Read a profile again. */
static int read_profile(struct profile *profile)
{
	const struct json *rows;
	struct writer writer;
	int failed;

	control_free(&profile->answer);
	profile->settings = NULL;
	profile->state = MRC_CTL_PROFILE_INIT;
	control_begin(&writer, "profile_list");
	failed = control_ask(profile->device, &writer, &profile->answer);
	if (failed)
		return failed;
	rows = json_get(profile->answer.root, "profiles");
	for (const struct json *each = rows ? rows->first : NULL; each; each = each->next) {
		const char *state = json_text(each, "state", "");

		if (strcmp(json_text(each, "kind", ""), profile->kind) || strcmp(json_text(each, "name", ""), profile->name))
			continue;
		profile->settings = json_get(each, "settings");
		for (int i = 0; i < 3; i++)
			if (!strcmp(state, state_names[i]))
				profile->state = (enum mrc_ctl_profile_state)i;
	}
	return 0;
}

static int find_profile(struct profile *profile, const struct mrc_context *context, const char *kind, uint64_t id)
{
	memset(profile, 0, sizeof(*profile));
	profile->device = device_of(context);
	profile->kind = kind;
	name_profile(profile->name, id);
	return read_profile(profile);
}

/* Whether a setting is there: before, or with this call. */
static bool has(const struct profile *profile, const char *key, bool now)
{
	return now || json_get(profile->settings, key);
}

static void begin_profile(struct writer *writer, const char *verb, const struct profile *profile)
{
	control_begin(writer, verb);
	write_text(writer, "kind", profile->kind);
	write_text(writer, "name", profile->name);
}

/* Begin a request that changes settings, or makes the profile with them. */
static void begin_settings(struct writer *writer, const struct profile *profile)
{
	begin_profile(writer, profile->settings ? "profile_modify" : "profile_create", profile);
	write_open(writer, "settings", '{');
}

static int end_settings(struct writer *writer, const struct profile *profile)
{
	write_close(writer, '}');
	return control_ask(profile->device, writer, NULL);
}

static int set_state(const struct profile *profile, enum mrc_ctl_profile_state state)
{
	struct writer writer;
	int failed;

	begin_profile(&writer, "profile_state", profile);
	write_text(&writer, "state", state_names[state]);
	failed = control_ask(profile->device, &writer, NULL);
	if (failed || state != MRC_CTL_PROFILE_INIT || !strcmp(profile->name, "default"))
		return failed;
	/* In INIT it is as if it had never been changed. */
	begin_profile(&writer, "profile_delete", profile);
	return control_ask(profile->device, &writer, NULL);
}

/* Check the states that a call names: the one that the profile must be in, and one to which there is a step. */
static int check_states(const struct profile *profile, bool is, enum mrc_ctl_profile_state current, bool to,
			enum mrc_ctl_profile_state wanted)
{
	if (is && current != profile->state) {
		say("%s profile %s is %s", profile->kind, profile->name, state_names[profile->state]);
		return EINVAL;
	}
	if (!to)
		return 0;
	if ((unsigned int)wanted > MRC_CTL_PROFILE_ONLINE)
		return wrong("a profile's state is INIT, OFFLINE or ONLINE");
	if (wanted + 1 != profile->state && wanted != profile->state + 1) {
		say("%s profile %s is %s and cannot go to %s", profile->kind, profile->name, state_names[profile->state],
		    state_names[wanted]);
		return EINVAL;
	}
	return 0;
}

/* Whether the state comes before what else a call does: fields and EVs change in OFFLINE. */
static bool is_first(enum mrc_ctl_profile_state wanted)
{
	return wanted == MRC_CTL_PROFILE_OFFLINE;
}

static int query_details(const struct profile *profile, struct control_answer *answer)
{
	struct writer writer;

	begin_profile(&writer, "profile", profile);
	return control_ask(profile->device, &writer, answer);
}

/* -- EV format profiles ------------------------------------------------------------------------------------------- */

#define FMT_MASK                                                                                                       \
	(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE | MRC_CTL_EV_FMT_PROFILE_MODE |               \
	 MRC_CTL_EV_FMT_PROFILE_OP | MRC_CTL_EV_FMT_VENDOR_CFG)

static unsigned int sum_of_widths(const struct mrc_ctl_ev_fmt_profile_attr *attr)
{
	unsigned int sum = 0;

	for (int i = 0; i < attr->ev_fmt_op.fmt_field_count; i++)
		sum += attr->ev_fmt_op.fmt_fields[i].width;
	return sum;
}

static unsigned int sum_of_numbers(const struct json *array)
{
	unsigned int sum = 0;

	for (const struct json *each = array ? array->first : NULL; each; each = each->next)
		sum += (unsigned int)each->number;
	return sum;
}

static const char *fmt_of(enum mrc_ctl_ev_fmt_mode mode, unsigned int bits)
{
	switch (mode) {
	case MRC_CTL_EV_FMT_MODE_STEV:
		return "stev32";
	case MRC_CTL_EV_FMT_MODE_UDP:
		return "udp16";
	case MRC_CTL_EV_FMT_MODE_SRV6:
		return bits > 128 ? "srv6_srh256" : "srv6_usid128";
	}
	return NULL;
}

static enum mrc_ctl_ev_fmt_mode fmt_mode_of(const char *fmt)
{
	if (!strncasecmp(fmt, "srv6", 4))
		return MRC_CTL_EV_FMT_MODE_SRV6;
	return strncasecmp(fmt, "udp", 3) ? MRC_CTL_EV_FMT_MODE_STEV : MRC_CTL_EV_FMT_MODE_UDP;
}

static int query_fmt_fields(const struct profile *profile, struct mrc_ctl_ev_fmt_profile_attr *attr)
{
	const struct json *widths = json_get(profile->settings, "widths");
	int count = (int)json_count(widths);
	int room = attr->ev_fmt_op.fmt_field_count;

	if (room < 0 || (room && !attr->ev_fmt_op.fmt_fields))
		return EINVAL;
	attr->ev_fmt_op.fmt_field_count = count;
	if (room < count)
		return E2BIG;
	for (const struct json *each = widths ? widths->first : NULL; each; each = each->next)
		*attr->ev_fmt_op.fmt_fields++ = (struct mrc_ctl_ev_fmt_field){.width = (uint8_t)each->number};
	attr->ev_fmt_op.fmt_fields -= count;
	return 0;
}

static int modify_fmt_settings(const struct profile *profile, const struct mrc_ctl_ev_fmt_profile_attr *attr, int mask,
			       bool fields)
{
	const char *before = json_text(profile->settings, "fmt", NULL);
	const struct json *widths = json_get(profile->settings, "widths");
	enum mrc_ctl_ev_fmt_mode mode;
	struct writer writer;
	const char *fmt;

	if (!(mask & MRC_CTL_EV_FMT_PROFILE_MODE) && !before)
		return wrong("an EV format profile needs a mode first");
	mode = mask & MRC_CTL_EV_FMT_PROFILE_MODE ? attr->ev_fmt_mode : fmt_mode_of(before);
	fmt = fmt_of(mode, fields ? sum_of_widths(attr) : sum_of_numbers(widths));
	if (!fmt)
		return wrong("an EV format's mode is STEV, SRV6 or UDP");
	begin_settings(&writer, profile);
	write_text(&writer, "fmt", fmt);
	if (fields) {
		write_open(&writer, "widths", '[');
		for (int i = 0; i < attr->ev_fmt_op.fmt_field_count; i++)
			write_number(&writer, NULL, attr->ev_fmt_op.fmt_fields[i].width);
		write_close(&writer, ']');
	}
	return end_settings(&writer, profile);
}

static int modify_fmt(struct profile *profile, struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	bool moves = mask & MRC_CTL_EV_FMT_PROFILE_STATE;
	bool operates = mask & MRC_CTL_EV_FMT_PROFILE_OP;
	bool fields = operates && attr->ev_fmt_op.op == MRC_CTL_EV_FMT_OP_MODIFY_FIELDS;
	int failed = check_states(profile, mask & MRC_CTL_EV_FMT_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				  attr->profile_state);

	if (failed)
		return failed;
	if (operates && !fields && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS)
		return EINVAL;
	if (fields && (attr->ev_fmt_op.fmt_field_count < 1 || !attr->ev_fmt_op.fmt_fields))
		return wrong("an EV format has at least one field");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT &&
	    !has(profile, "fmt", mask & MRC_CTL_EV_FMT_PROFILE_MODE))
		return wrong("an EV format profile needs a mode to go OFFLINE");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && !has(profile, "widths", fields))
		return wrong("an EV format profile needs fields to go ONLINE");
	if (fields || mask & MRC_CTL_EV_FMT_PROFILE_MODE)
		failed = modify_fmt_settings(profile, attr, mask, fields);
	if (!failed && operates && !fields)
		failed = query_fmt_fields(profile, attr);
	if (!failed && moves)
		failed = set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					 struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, FMT_MASK))
		return fail(EINVAL);
	if (mask & MRC_CTL_EV_FMT_VENDOR_CFG)
		return fail(no_vendor(__func__));
	failed = find_profile(&profile, context, "format", id);
	if (failed)
		return fail(failed);
	failed = modify_fmt(&profile, attr, mask);
	control_free(&profile.answer);
	return fail(failed);
}

EXPORT int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct control_answer details = {.root = NULL};
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, FMT_MASK))
		return fail(EINVAL);
	if (mask & MRC_CTL_EV_FMT_VENDOR_CFG)
		return fail(no_vendor(__func__));
	if (mask & MRC_CTL_EV_FMT_PROFILE_OP && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS)
		return fail(EINVAL);
	failed = find_profile(&profile, context, "format", id);
	if (failed)
		return fail(failed);
	if (mask & (MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & MRC_CTL_EV_FMT_PROFILE_MODE) {
		memset(&attr->ev_fmt_mode, 0, sizeof(attr->ev_fmt_mode));
		if (profile.settings)
			failed = query_details(&profile, &details);
		if (!failed && details.root)
			attr->ev_fmt_mode = fmt_mode_of(json_text(details.root, "fmt", ""));
		control_free(&details);
	}
	if (!failed && mask & MRC_CTL_EV_FMT_PROFILE_OP)
		failed = query_fmt_fields(&profile, attr);
	control_free(&profile.answer);
	return fail(failed);
}

/* -- EV profiles -------------------------------------------------------------------------------------------------- */

#define EV_SETTINGS                                                                                                    \
	(MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT |                             \
	 MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK)
#define EV_MASK                                                                                                        \
	(EV_SETTINGS | MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE | MRC_CTL_EV_PROFILE_EV_OP |            \
	 MRC_CTL_EV_PROFILE_EV_FIELDS_OP | MRC_CTL_EV_PROFILE_VENDOR_CFG)

/* An EV of the lab is a number of 32 bits, also where a switch reads an address that its path follows from. */
static int number_of(const struct mrc_ctl_ev *ev, uint32_t *number)
{
	memcpy(number, ev->val, sizeof(*number));
	for (size_t i = sizeof(*number); i < sizeof(ev->val); i++)
		if (ev->val[i])
			return wrong("EVs of the lab are numbers, in the first four bytes");
	return 0;
}

static struct mrc_ctl_ev ev_of(uint64_t number, uint64_t plane)
{
	struct mrc_ctl_ev ev = {.port = (uint8_t)(plane + 1)};
	uint32_t value = (uint32_t)number;

	memcpy(ev.val, &value, sizeof(value));
	return ev;
}

static bool is_unpopulated(const struct mrc_ctl_ev *ev)
{
	static const struct mrc_ctl_ev none;

	return !ev->port && !memcmp(ev->val, none.val, sizeof(none.val));
}

static enum mrc_ctl_ev_state ev_state_of(const char *name)
{
	if (!strcmp(name, "GOOD") || !strcmp(name, "SKIP"))
		return MRC_CTL_EV_GOOD;
	if (!strcmp(name, "ASSUMED_BAD"))
		return MRC_CTL_EV_ASSUMED_BAD;
	return strcmp(name, "DENIED") ? MRC_CTL_EV_UNKNOWN : MRC_CTL_EV_DENIED;
}

static int write_entry(struct writer *writer, const char *key, const struct mrc_ctl_ev *ev)
{
	uint32_t number;
	int failed = number_of(ev, &number);

	if (!failed && !ev->port)
		failed = wrong("ports of EVs count from 1");
	write_open(writer, key, '[');
	write_number(writer, NULL, number);
	write_number(writer, NULL, ev->port ? (uint64_t)ev->port - 1 : 0);
	write_close(writer, ']');
	return failed;
}

static int set_ev_state(const struct profile *profile, const struct mrc_ctl_ev *ev, enum mrc_ctl_ev_state state)
{
	struct writer writer;
	uint32_t number;
	int failed = number_of(ev, &number);

	if (failed)
		return failed;
	if (state != MRC_CTL_EV_DENIED && state != MRC_CTL_EV_GOOD)
		return wrong("a controller sets EVs to DENIED or GOOD; the other states are the endpoint's");
	control_begin(&writer, "ev_set");
	write_open(&writer, "evs", '[');
	write_number(&writer, NULL, number);
	write_close(&writer, ']');
	write_text(&writer, "state", state == MRC_CTL_EV_DENIED ? "DENIED" : "GOOD");
	return control_ask(profile->device, &writer, NULL);
}

/* Return the row of an EV in the answer to `query_details`: `[EV, plane, state]`. */
static const struct json *row_of(const struct control_answer *details, const struct mrc_ctl_ev *ev)
{
	const struct json *rows = json_get(details->root, "evs");
	uint32_t number;

	if (number_of(ev, &number))
		return NULL;
	for (const struct json *each = rows ? rows->first : NULL; each; each = each->next)
		if (json_count(each) == 3 && each->first->number == number && each->first->next->number + 1 == ev->port)
			return each;
	return NULL;
}

static int replace_one(const struct profile *profile, const struct mrc_ctl_ev_op_entry *entry)
{
	bool places = json_get(profile->settings, "entries");
	struct writer writer;
	uint32_t old, new;
	int failed;

	if (is_unpopulated(&entry->ev_new))
		return wrong("an EV is replaced by another, not by none");
	if (places) {
		control_begin(&writer, "profile_entry");
		write_text(&writer, "profile", profile->name);
		failed = write_entry(&writer, "new", &entry->ev_new);
		if (is_unpopulated(&entry->ev))
			write_null(&writer, "old");
		else if (!failed)
			failed = write_entry(&writer, "old", &entry->ev);
	} else {
		failed = number_of(&entry->ev, &old);
		if (!failed)
			failed = number_of(&entry->ev_new, &new);
		if (!failed && entry->ev.port != entry->ev_new.port)
			failed = wrong("an EV is replaced by one of the same port");
		control_begin(&writer, "ev_replace");
		write_number(&writer, "old", failed ? 0 : old);
		write_number(&writer, "new", failed ? 0 : new);
		write_text(&writer, "profile", profile->name);
	}
	if (failed) {
		write_free(&writer);
		return failed;
	}
	failed = control_ask(profile->device, &writer, NULL);
	if (!failed && entry->state == MRC_CTL_EV_DENIED)
		failed = set_ev_state(profile, &entry->ev_new, entry->state);
	return failed;
}

static int operate_on_array(const struct control_answer *details, struct mrc_ctl_ev_profile_attr *attr)
{
	const struct json *rows = json_get(details->root, "evs");
	int count = (int)json_count(rows), room = attr->ev_op.entry_count;
	struct mrc_ctl_ev_op_entry *entry = attr->ev_op.entries;

	attr->ev_op.entry_count = count;
	if (room < count)
		return E2BIG;
	for (const struct json *each = rows ? rows->first : NULL; each; each = each->next, entry++) {
		bool taken = json_count(each) == 3;

		entry->ev = taken ? ev_of(each->first->number, each->first->next->number) : MRC_CTL_EV_UNPOPULATED;
		entry->state = taken ? ev_state_of(each->first->next->next->text) : MRC_CTL_EV_UNKNOWN;
	}
	return 0;
}

/* Carry out an operation on EVs, up to the first entry that fails. */
static int operate(const struct profile *profile, struct mrc_ctl_ev_profile_attr *attr)
{
	struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
	struct control_answer details = {.root = NULL};
	int failed = 0;

	if (attr->ev_op.entry_count < 0 || (attr->ev_op.entry_count && !entries))
		return EINVAL;
	if (attr->ev_op.op != MRC_CTL_EV_OP_REPLACE_EV)
		failed = query_details(profile, &details);
	if (!failed && attr->ev_op.op == MRC_CTL_EV_OP_QUERY_EV_ARRAY) {
		failed = operate_on_array(&details, attr);
		control_free(&details);
		return failed;
	}
	for (int i = 0; !failed && i < attr->ev_op.entry_count; i++) {
		const struct json *row;

		if (attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV) {
			failed = entries[i].flags & ~(uint32_t)MRC_CTL_EV_OP_F_ALL_COPIES ? EINVAL
											  : replace_one(profile, &entries[i]);
			continue;
		}
		row = row_of(&details, &entries[i].ev);
		if (!row)
			failed = ENOENT;
		else if (attr->ev_op.op == MRC_CTL_EV_OP_MODIFY_EV_STATE)
			failed = set_ev_state(profile, &entries[i].ev, entries[i].state);
		else
			entries[i].state = ev_state_of(row->first->next->next->text);
	}
	control_free(&details);
	return failed;
}

static int query_fields(const struct profile *profile, struct mrc_ctl_ev_profile_attr *attr)
{
	const struct json *fields = json_get(profile->settings, "fields");
	struct mrc_ctl_ev_field *field = attr->ev_fields_op.fields;
	int count = (int)json_count(fields), room = attr->ev_fields_op.field_count;

	if (room < 0 || (room && !field))
		return EINVAL;
	attr->ev_fields_op.field_count = count;
	if (room < count)
		return E2BIG;
	for (const struct json *each = fields ? fields->first : NULL; each; each = each->next)
		*field++ = (struct mrc_ctl_ev_field){
			.width = (uint32_t)json_number(each, "width", 0),
			.init_val = (uint32_t)json_number(each, "init", 0),
			.min_val = (uint32_t)json_number(each, "minimum", 0),
			.max_val = (uint32_t)json_number(each, "maximum", 0),
			.mask = (uint32_t)json_number(each, "mask", 0),
		};
	return 0;
}

static void write_fields(struct writer *writer, const struct mrc_ctl_ev_profile_attr *attr)
{
	write_open(writer, "fields", '[');
	for (int i = 0; i < attr->ev_fields_op.field_count; i++) {
		const struct mrc_ctl_ev_field *field = &attr->ev_fields_op.fields[i];

		write_open(writer, NULL, '{');
		write_number(writer, "width", field->width);
		write_number(writer, "init", field->init_val);
		write_number(writer, "minimum", field->min_val);
		write_number(writer, "maximum", field->max_val);
		write_number(writer, "mask", field->mask);
		write_close(writer, '}');
	}
	write_close(writer, ']');
}

static int modify_ev_settings(struct profile *profile, const struct mrc_ctl_ev_profile_attr *attr, int mask, bool fields)
{
	char format[NAME_BYTES];
	struct writer writer;

	begin_settings(&writer, profile);
	if (mask & MRC_CTL_EV_PROFILE_MODE) {
		write_text(&writer, "mode",
			   attr->ev_mode == MRC_CTL_EV_MODE_AUTO  ? "auto"
			   : attr->ev_mode == MRC_CTL_EV_MODE_EXP ? "explicit"
								  : "generated");
		if (attr->ev_mode == MRC_CTL_EV_MODE_EXP && !json_get(profile->settings, "entries")) {
			write_open(&writer, "entries", '[');
			write_close(&writer, ']');
		}
	}
	if (mask & MRC_CTL_EV_PROFILE_FMT_ID) {
		name_profile(format, attr->ev_fmt_profile_id);
		write_text(&writer, "format", format);
	}
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		write_number(&writer, "count", attr->ev_count);
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		write_number(&writer, "ev_min_active", attr->ev_min_active ? attr->ev_min_active : 1);
	/* Without a mask there are no events of the profile. */
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK || (!profile->settings)) {
		int events = mask & MRC_CTL_EV_PROFILE_EVENT_MASK ? attr->ev_event_mask : 0;

		write_open(&writer, "event_states", '[');
		if (events & MRC_CTL_EV_GOOD)
			write_text(&writer, NULL, "GOOD");
		if (events & MRC_CTL_EV_ASSUMED_BAD)
			write_text(&writer, NULL, "ASSUMED_BAD");
		write_close(&writer, ']');
	}
	if (fields)
		write_fields(&writer, attr);
	return end_settings(&writer, profile);
}

/* Check what a step of a profile's life requires. `fields`: whether they come with this call. */
static int check_ev_step(const struct profile *profile, const struct mrc_ctl_ev_profile_attr *attr, int mask, bool fields)
{
	const char *mode = json_text(profile->settings, "mode", "");
	bool generated = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_GEN : !strcmp(mode, "generated");
	bool automatic = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_AUTO : !strcmp(mode, "auto");

	if (attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT) {
		if (!has(profile, "mode", mask & MRC_CTL_EV_PROFILE_MODE) ||
		    !has(profile, "count", mask & MRC_CTL_EV_PROFILE_COUNT) ||
		    (!automatic && !has(profile, "format", mask & MRC_CTL_EV_PROFILE_FMT_ID)))
			return wrong("an EV profile needs mode, format and count to go OFFLINE");
		if (generated && !has(profile, "fields", fields))
			return wrong("an EV profile of generated EVs needs fields to go OFFLINE");
	}
	if (attr->profile_state == MRC_CTL_PROFILE_ONLINE && (!has(profile, "ev_min_active", mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)))
		return wrong("an EV profile needs the minimum of active EVs to go ONLINE");
	return 0;
}

static int check_ev_attr(const struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	if (mask & MRC_CTL_EV_PROFILE_EV_OP && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
		return wrong("operations on EVs and on fields exclude each other");
	if (mask & MRC_CTL_EV_PROFILE_MODE && attr->ev_mode != MRC_CTL_EV_MODE_AUTO && attr->ev_mode != MRC_CTL_EV_MODE_EXP &&
	    attr->ev_mode != MRC_CTL_EV_MODE_GEN)
		return wrong("an EV profile's mode is AUTO, EXP or GEN");
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK && !KNOWN(attr->ev_event_mask, MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD))
		return wrong("events are of changes to GOOD and to ASSUMED_BAD");
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE && mask & MRC_CTL_EV_PROFILE_COUNT && attr->ev_min_active > attr->ev_count)
		return wrong("the minimum of active EVs is at most their count");
	if (mask & MRC_CTL_EV_PROFILE_EV_OP && (unsigned int)attr->ev_op.op > MRC_CTL_EV_OP_QUERY_EV_ARRAY)
		return EINVAL;
	if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && (unsigned int)attr->ev_fields_op.op > MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS)
		return EINVAL;
	return 0;
}

static int modify_ev(struct profile *profile, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	bool moves = mask & MRC_CTL_EV_PROFILE_STATE;
	bool fields = mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && attr->ev_fields_op.op == MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS;
	int failed = check_ev_attr(attr, mask);

	if (!failed)
		failed = check_states(profile, mask & MRC_CTL_EV_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				      attr->profile_state);
	if (!failed && fields && (attr->ev_fields_op.field_count < 1 || !attr->ev_fields_op.fields))
		failed = wrong("fields are at least one");
	if (!failed && moves)
		failed = check_ev_step(profile, attr, mask, fields);
	if (!failed && (fields || mask & EV_SETTINGS))
		failed = modify_ev_settings(profile, attr, mask, fields);
	if (!failed && moves && is_first(attr->profile_state))
		failed = set_state(profile, attr->profile_state);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && !fields)
		failed = query_fields(profile, attr);
	/* What has just been set decides how an operation is carried out. */
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP && (fields || mask & EV_SETTINGS))
		failed = read_profile(profile);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP)
		failed = profile->settings ? operate(profile, attr) : wrong("an EV profile in INIT has no EVs");
	if (!failed && moves && !is_first(attr->profile_state))
		failed = set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, EV_MASK))
		return fail(EINVAL);
	if (mask & MRC_CTL_EV_PROFILE_VENDOR_CFG)
		return fail(no_vendor(__func__));
	failed = find_profile(&profile, context, "ev", id);
	if (failed)
		return fail(failed);
	failed = modify_ev(&profile, attr, mask);
	control_free(&profile.answer);
	return fail(failed);
}

static void query_ev_settings(const struct profile *profile, const struct control_answer *details,
			      struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	static const char *const states[] = {"GOOD", "ASSUMED_BAD", NULL};
	const char *mode = json_text(details->root, "mode", "");
	const struct json *events = json_get(profile->settings, "event_states");

	if (mask & MRC_CTL_EV_PROFILE_MODE) {
		memset(&attr->ev_mode, 0, sizeof(attr->ev_mode));
		if (*mode)
			attr->ev_mode = !strcmp(mode, "EXPLICIT")    ? MRC_CTL_EV_MODE_EXP
					: !strcmp(mode, "GENERATED") ? MRC_CTL_EV_MODE_GEN
								     : MRC_CTL_EV_MODE_AUTO;
	}
	if (mask & MRC_CTL_EV_PROFILE_FMT_ID)
		attr->ev_fmt_profile_id = id_of(json_text(profile->settings, "format", NULL));
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		attr->ev_count = (uint32_t)json_number(details->root, "count", 0);
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		attr->ev_min_active = (uint32_t)json_number(details->root, "ev_min_active", 0);
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK) {
		attr->ev_event_mask = (int)mask_of(events, states);
		/* The default profile reports everything until it has a mask. */
		if (!events && profile->settings)
			attr->ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD;
	}
}

EXPORT int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	struct control_answer details = {.root = NULL};
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, EV_MASK) || check_ev_attr(attr, mask & ~EV_SETTINGS))
		return fail(EINVAL);
	if (mask & MRC_CTL_EV_PROFILE_VENDOR_CFG)
		return fail(no_vendor(__func__));
	if ((mask & MRC_CTL_EV_PROFILE_EV_OP && attr->ev_op.op < MRC_CTL_EV_OP_QUERY_EV_STATE) ||
	    (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS))
		return fail(wrong("a query changes nothing"));
	failed = find_profile(&profile, context, "ev", id);
	if (failed)
		return fail(failed);
	if (mask & (MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & EV_SETTINGS) {
		if (profile.settings)
			failed = query_details(&profile, &details);
		if (!failed)
			query_ev_settings(&profile, &details, attr, mask);
		control_free(&details);
	}
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
		failed = query_fields(&profile, attr);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP) {
		if (profile.settings)
			failed = operate(&profile, attr);
		else if (attr->ev_op.op == MRC_CTL_EV_OP_QUERY_EV_ARRAY)
			attr->ev_op.entry_count = 0;
		else
			failed = attr->ev_op.entry_count ? ENOENT : 0;
	}
	control_free(&profile.answer);
	return fail(failed);
}

/* -- congestion control profiles ---------------------------------------------------------------------------------- */

#define CC_MASK                                                                                                        \
	(MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE | MRC_CTL_CC_PROFILE_ALGORITHM |                     \
	 MRC_CTL_CC_PROFILE_CONFIG | MRC_CTL_CC_PROFILE_VENDOR_CFG)

static void write_nscc(struct writer *writer, const struct mrc_ctl_cc_nscc_cfg *config)
{
	write_bool(writer, "disable_qa", config->disable_qa);
	write_number(writer, "adjust_bytes_threshold", config->adjust_bytes_threshold);
	write_number(writer, "adjust_period_threshold_ns", config->adjust_period_threshold);
	write_number(writer, "base_rtt_ns", config->base_rtt);
	write_real(writer, "eta", (double)config->eta);
	write_real(writer, "fi", (double)config->fi);
	write_real(writer, "fi_scale", (double)config->fi_scale);
	write_real(writer, "gamma", (double)config->gamma);
	write_real(writer, "max_md_jump", (double)config->max_md_jump);
	write_number(writer, "max_wnd_bytes", config->max_cwnd);
	write_number(writer, "qa_gate", config->qa_gate);
	write_number(writer, "qa_threshold_ns", config->qa_threshold);
	write_number(writer, "target_qdelay_ns", config->target_delay);
}

static uint32_t capped(const struct json *object, const char *key)
{
	uint64_t number = json_number(object, key, 0);

	return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

static void read_nscc(const struct json *found, struct mrc_ctl_cc_nscc_cfg *config)
{
	memset(config, 0, sizeof(*config));
	config->disable_qa = json_bool(found, "disable_qa", false);
	config->adjust_bytes_threshold = capped(found, "adjust_bytes_threshold");
	config->adjust_period_threshold = capped(found, "adjust_period_threshold");
	config->base_rtt = capped(found, "base_rtt");
	config->eta = (float)json_real(found, "eta", 0);
	config->fi = (float)json_real(found, "fi", 0);
	config->fi_scale = (float)json_real(found, "fi_scale", 0);
	config->gamma = (float)json_real(found, "gamma", 0);
	config->max_md_jump = (float)json_real(found, "max_md_jump", 0);
	config->max_cwnd = capped(found, "max_cwnd");
	config->qa_gate = (uint8_t)json_number(found, "qa_gate", 0);
	config->qa_threshold = capped(found, "qa_threshold");
	config->target_delay = capped(found, "target_delay");
}

static int modify_cc(struct profile *profile, const struct mrc_ctl_cc_profile_attr *attr, int mask)
{
	const char *before = json_text(profile->settings, "algorithm", NULL);
	bool named = mask & MRC_CTL_CC_PROFILE_ALGORITHM;
	bool configured = mask & MRC_CTL_CC_PROFILE_CONFIG;
	bool moves = mask & MRC_CTL_CC_PROFILE_STATE;
	bool nscc = named ? attr->algorithm != NULL : before && !strcmp(before, "nscc");
	int failed = check_states(profile, mask & MRC_CTL_CC_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				  attr->profile_state);

	if (failed)
		return failed;
	if (named && attr->algorithm && strcmp(attr->algorithm, known_algorithms[0])) {
		say("no algorithm of congestion control '%s'; there is %s", attr->algorithm, known_algorithms[0]);
		return EINVAL;
	}
	if (configured && (!nscc || !attr->cc_config))
		return wrong("a configuration is of uet-1.0-nscc");
	if (!named && !before && (configured || moves))
		return wrong("a CC profile needs an algorithm first");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && nscc && !has(profile, "target_qdelay_ns", configured))
		return wrong("a CC profile needs its configuration to go ONLINE");
	if (named || configured) {
		struct writer writer;

		begin_settings(&writer, profile);
		write_text(&writer, "algorithm", nscc ? "nscc" : "fixed");
		if (configured)
			write_nscc(&writer, attr->cc_config);
		failed = end_settings(&writer, profile);
	}
	if (!failed && moves)
		failed = set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, CC_MASK))
		return fail(EINVAL);
	if (mask & MRC_CTL_CC_PROFILE_VENDOR_CFG)
		return fail(no_vendor(__func__));
	failed = find_profile(&profile, context, "cc", id);
	if (failed)
		return fail(failed);
	failed = modify_cc(&profile, attr, mask);
	control_free(&profile.answer);
	return fail(failed);
}

EXPORT int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask)
{
	struct control_answer details = {.root = NULL};
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, CC_MASK))
		return fail(EINVAL);
	if (mask & MRC_CTL_CC_PROFILE_VENDOR_CFG)
		return fail(no_vendor(__func__));
	if (mask & MRC_CTL_CC_PROFILE_CONFIG && !attr->cc_config)
		return fail(EINVAL);
	failed = find_profile(&profile, context, "cc", id);
	if (failed)
		return fail(failed);
	if (mask & (MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (profile.settings && mask & (MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG))
		failed = query_details(&profile, &details);
	if (!failed) {
		const struct json *found = json_get(details.root, "congestion");
		bool nscc = !strcmp(json_text(found, "algorithm", ""), "nscc");

		if (mask & MRC_CTL_CC_PROFILE_ALGORITHM)
			attr->algorithm = nscc ? known_algorithms[0] : NULL;
		/* The header's structure has it constant, though a query fills it in. */
		if (mask & MRC_CTL_CC_PROFILE_CONFIG)
			read_nscc(nscc ? found : NULL, (struct mrc_ctl_cc_nscc_cfg *)(uintptr_t)attr->cc_config);
	}
	control_free(&details);
	control_free(&profile.answer);
	return fail(failed);
}

/* -- events of EVs ------------------------------------------------------------------------------------------------ */

EXPORT struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *user,
						 struct mrc_comp_channel *channel, int vector)
{
	struct writer writer;
	struct ibv_cq *cq;
	int failed;

	if (!context) {
		errno = EINVAL;
		return NULL;
	}
	failed = control_may(device_of(context));
	if (failed) {
		errno = failed;
		return NULL;
	}
	cq = lab_create_cq(&context->lab->verbs.context, cqe, user, (struct ibv_comp_channel *)channel, vector);
	if (!cq)
		return NULL;
	CONTAINER(cq, struct lab_cq, base)->ev_event_bytes =
		context->api_version >= MRC_CTL_API_VER(1, 0, 1) ? sizeof(struct mrc_ctl_ev_event) : EVENT_BYTES_1_0_0;
	write_begin(&writer, "watch_evs");
	write_number(&writer, "cq", cq->handle);
	failed = lab_ask(context->lab, &writer, NULL);
	if (failed) {
		lab_destroy_cq(cq);
		errno = failed;
		return NULL;
	}
	return (struct mrc_cq *)cq;
}

EXPORT int mrc_ctl_poll_ev_event(struct mrc_cq *ev_cq, int count, struct mrc_ctl_ev_event *events)
{
	struct lab_cq *cq = (struct lab_cq *)ev_cq;
	unsigned char *to = (unsigned char *)events;
	uint64_t pending;
	int found = 0;

	if (!cq || !cq->ev_event_bytes || count < 0 || (count && !events))
		return -EINVAL;
	if (is_forked(lab_of(cq->base.context)))
		return -ENODEV;
	pthread_mutex_lock(&cq->lock);
	pending = ring_pending(&cq->ring);
	if (!pending && connection_lost(&lab_of(cq->base.context)->connection))
		found = -ENODEV;
	if (pending > cq->ring.capacity)
		found = -EIO;
	for (; found >= 0 && pending && found < count; pending--, found++) {
		const struct ring_completion *entry = ring_at(&cq->ring, cq->ring.place);
		struct mrc_ctl_ev_event event = {
			.profile_id = entry->wr_id,
			.ev = ev_of(entry->qp_num, entry->byte_len),
			.drop_count = entry->immediate,
			.state = (enum mrc_ctl_ev_state)entry->opcode,
		};

		memcpy(to, &event, cq->ev_event_bytes);
		to += cq->ev_event_bytes;
		cq->ring.place++;
		ring_release(&cq->ring);
	}
	pthread_mutex_unlock(&cq->lock);
	return found;
}

/* -- operations towards endpoints --------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The probes of a batch towards one address. `members`: their indices in the caller's array. */
struct batch {
	uint64_t number;
	int *members;
	int count;
};

static int send_batch(const struct mrc_context *context, struct batch *batch, const struct mrc_ctl_ep_req *req, uint8_t dscp,
		      uint32_t timeout)
{
	char address[INET6_ADDRSTRLEN];
	struct control_answer answer;
	struct writer writer;
	int failed = 0;

	inet_ntop(AF_INET6, req[batch->members[0]].dgid.raw, address, sizeof(address));
	control_begin(&writer, "ev_probe");
	write_text(&writer, "address", address);
	write_open(&writer, "evs", '[');
	for (int i = 0; i < batch->count && !failed; i++)
		failed = write_entry(&writer, NULL, &req[batch->members[i]].req_ev);
	write_close(&writer, ']');
	write_number(&writer, "timeout_ns", timeout ? timeout : 1);
	write_number(&writer, "dscp", dscp);
	if (failed) {
		write_free(&writer);
		return failed;
	}
	failed = control_ask(device_of(context), &writer, &answer);
	if (failed)
		return failed;
	batch->number = json_number(answer.root, "batch", 0);
	control_free(&answer);
	return 0;
}

/* Ask for the answers of a batch; once all are there, or too late, they go to `rsp`, and `*done` is true. */
static int take_batch(const struct mrc_context *context, const struct batch *batch, const struct mrc_ctl_ep_req *req,
		      struct mrc_ctl_ep_rsp *rsp, int *num_rsp, bool *done)
{
	struct control_answer answer;
	struct writer writer;
	const struct json *rows;
	int failed;

	control_begin(&writer, "ev_probe_result");
	write_number(&writer, "batch", batch->number);
	failed = control_ask(device_of(context), &writer, &answer);
	if (failed)
		return failed;
	*done = !json_number(answer.root, "waiting", 0);
	rows = json_get(answer.root, "results");
	for (const struct json *each = *done && rows ? rows->first : NULL; each; each = each->next) {
		const struct json *rtt = json_get(each, "rtt_ns");
		uint64_t index = json_number(each, "request", 0);

		if (!rtt || rtt->type != JSON_NUMBER || index >= (uint64_t)batch->count)
			continue;
		rsp[*num_rsp].req_id = req[batch->members[index]].req_id;
		rsp[*num_rsp].port = (uint8_t)(json_number(each, "port", 0) + 1);
		rsp[*num_rsp].rtt = (unsigned int)rtt->number;
		rsp[*num_rsp].adj_svc_time = 0;
		(*num_rsp)++;
	}
	control_free(&answer);
	return 0;
}

static int probe(const struct mrc_context *context, struct batch *batch, int *members, const struct mrc_ctl_ep_req *req,
		 int num_req, uint8_t dscp, uint32_t timeout, struct mrc_ctl_ep_rsp *rsp, int *num_rsp)
{
	const struct timespec pause = {.tv_nsec = PROBE_POLL_NS};
	uint64_t deadline;
	int batches = 0, placed = 0, failed = 0;

	/* Each address's requests stand together in `members`. */
	for (int i = 0; i < num_req; i++) {
		bool first = true;

		for (int j = 0; j < i && first; j++)
			first = memcmp(req[j].dgid.raw, req[i].dgid.raw, sizeof(req[i].dgid.raw)) != 0;
		if (!first)
			continue;
		batch[batches] = (struct batch){.members = members + placed};
		for (int j = i; j < num_req; j++)
			if (!memcmp(req[j].dgid.raw, req[i].dgid.raw, sizeof(req[i].dgid.raw)))
				members[placed++] = j, batch[batches].count++;
		batches++;
	}
	for (int i = 0; i < batches && !failed; i++)
		failed = send_batch(context, &batch[i], req, dscp, timeout);
	deadline = now_ns() + timeout + 30000000000U;
	while (batches && !failed) {
		for (int i = 0; i < batches && !failed;) {
			bool done = false;

			failed = take_batch(context, &batch[i], req, rsp, num_rsp, &done);
			if (done)
				batch[i] = batch[--batches];
			else
				i++;
		}
		if (batches && now_ns() > deadline)
			failed = EIO;
		if (batches && !failed)
			nanosleep(&pause, NULL);
	}
	return failed || *num_rsp == num_req ? failed : ETIMEDOUT;
}

EXPORT int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t dscp, enum mrc_ctl_ep_op_type type,
				      struct mrc_ctl_ep_req *req, int num_req, uint32_t timeout,
				      struct mrc_ctl_ep_rsp *rsp, int *num_rsp)
{
	struct batch *batches;
	int *members, failed;

	if (!context || num_req < 0 || !num_rsp || (num_req && (!req || !rsp)) || dscp > MAX_DSCP)
		return fail(EINVAL);
	*num_rsp = 0;
	if (type == MRC_CTL_EP_OP_PORT_STATUS_UPDATE) {
		say("%s: the endpoint tells its peers itself when a port changes", __func__);
		return fail(ENOTSUP);
	}
	if (type != MRC_CTL_EP_OP_EV_PROBE)
		return fail(EINVAL);
	for (int i = 0; i < num_req; i++)
		for (int j = 0; j < i; j++)
			if (req[i].req_id == req[j].req_id)
				return fail(wrong("the numbers of requests differ within a batch"));
	failed = control_may(device_of(context));
	if (failed || !num_req)
		return fail(failed);
	batches = calloc((size_t)num_req, sizeof(*batches));
	members = calloc((size_t)num_req, sizeof(*members));
	failed = batches && members ? probe(context, batches, members, req, num_req, dscp, timeout, rsp, num_rsp) : ENOMEM;
	free(batches);
	free(members);
	return fail(failed);
}
