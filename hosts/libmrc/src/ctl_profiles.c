/* Profiles of all kinds, which the agent holds: EV formats, congestion control, and EVs with their states. */
#include "ctl.h"

#include <stdio.h>
#include <strings.h>

#define NAME_BYTES 32

/* A profile as the agent has it. `settings`, in `answer`, are NULL where it has none of this number. */
struct profile {
	const char *device;
	const char *kind;
	char name[NAME_BYTES];
	enum mrc_ctl_profile_state state;
	json_t *settings;
	json_t *answer;
};

const char *const ctl_algorithms[] = {"uet-1.0-nscc", NULL};

uint32_t ctl_mask_of(const json_t *names, const char *const *known)
{
	uint32_t mask = 0;
	json_t *name;
	size_t at;

	json_array_foreach(names, at, name)
		for (unsigned int i = 0; known[i]; i++)
			if (json_is_string(name) && !strcmp(json_string_value(name), known[i]))
				mask |= 1U << i;
	return mask;
}

/* -- profiles of all kinds ---------------------------------------------------------------------------------------- */

static const char *const state_names[] = {"INIT", "OFFLINE", "ONLINE"};

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
	json_t *row;
	size_t at;
	int failed;

	json_decref(profile->answer);
	profile->answer = NULL;
	profile->settings = NULL;
	profile->state = MRC_CTL_PROFILE_INIT;
	failed = control_ask(profile->device, COMMAND("profile_list", ""), &profile->answer);
	if (failed)
		return failed;
	json_array_foreach(json_object_get(profile->answer, "profiles"), at, row) {
		const char *state = text_in(row, "state", "");

		if (strcmp(text_in(row, "kind", ""), profile->kind) || strcmp(text_in(row, "name", ""), profile->name))
			continue;
		profile->settings = json_object_get(row, "settings");
		for (int i = 0; i < 3; i++)
			if (!strcmp(state, state_names[i]))
				profile->state = (enum mrc_ctl_profile_state)i;
	}
	return 0;
}

/* Whether a setting is there: before, or with this call. */
static bool has(const struct profile *profile, const char *key, bool now)
{
	return now || json_object_get(profile->settings, key);
}

/* Change settings, which are used up, or make the profile with them. */
static int set_settings(const struct profile *profile, json_t *settings)
{
	return control_ask(profile->device,
			   COMMAND(profile->settings ? "profile_modify" : "profile_create", "ssssso", "kind", profile->kind,
				   "name", profile->name, "settings", settings),
			   NULL);
}

static int set_state(const struct profile *profile, enum mrc_ctl_profile_state state)
{
	int failed = control_ask(profile->device,
				 COMMAND("profile_state", "ssssss", "kind", profile->kind, "name", profile->name, "state",
					 state_names[state]),
				 NULL);

	if (failed || state != MRC_CTL_PROFILE_INIT || !strcmp(profile->name, "default"))
		return failed;
	/* In INIT it is as if it had never been changed. */
	return control_ask(profile->device,
			   COMMAND("profile_delete", "ssss", "kind", profile->kind, "name", profile->name), NULL);
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
		return ctl_wrong("a profile's state is INIT, OFFLINE or ONLINE");
	if (wanted + 1 != profile->state && wanted != profile->state + 1) {
		say("%s profile %s is %s and cannot go to %s", profile->kind, profile->name, state_names[profile->state],
		    state_names[wanted]);
		return EINVAL;
	}
	return 0;
}

static int query_details(const struct profile *profile, json_t **details)
{
	return control_ask(profile->device, COMMAND("profile", "ssss", "kind", profile->kind, "name", profile->name), details);
}

/* Begin a call for a profile; refuse what is wrong with it whatever the kind. `vendor`: it names a vendor's configuration. */
static int begin(struct profile *profile, const char *function, const struct mrc_context *context, const char *kind,
		 uint64_t id, const void *attr, bool known, bool vendor)
{
	memset(profile, 0, sizeof(*profile));
	if (!context || !attr || !known)
		return refused(EINVAL, "%s: an argument is missing or unknown", function);
	if (vendor) {
		say("%s: there is no vendor, and no configuration of one", function);
		return EOPNOTSUPP;
	}
	profile->device = ctl_device_of(context);
	profile->kind = kind;
	name_profile(profile->name, id);
	return read_profile(profile);
}

static int end(struct profile *profile, int failed)
{
	json_decref(profile->answer);
	return fail(failed);
}

/* -- EV formats --------------------------------------------------------------------------------------------------- */

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

static unsigned int sum_of_numbers(const json_t *array)
{
	unsigned int sum = 0;
	json_t *number;
	size_t at;

	json_array_foreach(array, at, number)
		sum += (unsigned int)json_integer_value(number);
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
	const json_t *widths = json_object_get(profile->settings, "widths");
	int count = (int)json_array_size(widths);
	int room = attr->ev_fmt_op.fmt_field_count;

	if (room < 0 || (room && !attr->ev_fmt_op.fmt_fields))
		return INVALID;
	attr->ev_fmt_op.fmt_field_count = count;
	if (room < count)
		return E2BIG;
	for (int i = 0; i < count; i++)
		attr->ev_fmt_op.fmt_fields[i] = (struct mrc_ctl_ev_fmt_field){
			.width = (uint8_t)json_integer_value(json_array_get(widths, (size_t)i))};
	return 0;
}

static int modify_fmt_settings(const struct profile *profile, const struct mrc_ctl_ev_fmt_profile_attr *attr, int mask,
			       bool fields)
{
	const char *before = text_in(profile->settings, "fmt", NULL);
	const json_t *widths = json_object_get(profile->settings, "widths");
	enum mrc_ctl_ev_fmt_mode mode;
	json_t *set = NULL;
	const char *fmt;

	if (!(mask & MRC_CTL_EV_FMT_PROFILE_MODE) && !before)
		return ctl_wrong("an EV format profile needs a mode first");
	mode = mask & MRC_CTL_EV_FMT_PROFILE_MODE ? attr->ev_fmt_mode : fmt_mode_of(before);
	fmt = fmt_of(mode, fields ? sum_of_widths(attr) : sum_of_numbers(widths));
	if (!fmt)
		return ctl_wrong("an EV format's mode is STEV, SRV6 or UDP");
	if (fields) {
		set = json_array();
		for (int i = 0; i < attr->ev_fmt_op.fmt_field_count; i++)
			json_array_append_new(set, json_integer(attr->ev_fmt_op.fmt_fields[i].width));
	}
	return set_settings(profile, json_pack("{ssso*}", "fmt", fmt, "widths", set));
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
		return INVALID;
	if (fields && (attr->ev_fmt_op.fmt_field_count < 1 || !attr->ev_fmt_op.fmt_fields))
		return ctl_wrong("an EV format has at least one field");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT &&
	    !has(profile, "fmt", mask & MRC_CTL_EV_FMT_PROFILE_MODE))
		return ctl_wrong("an EV format profile needs a mode to go OFFLINE");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && !has(profile, "widths", fields))
		return ctl_wrong("an EV format profile needs fields to go ONLINE");
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
	int failed = begin(&profile, __func__, context, "format", id, attr, KNOWN(mask, FMT_MASK),
			   mask & MRC_CTL_EV_FMT_VENDOR_CFG);

	return end(&profile, failed ? failed : modify_fmt(&profile, attr, mask));
}

EXPORT int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	bool known = attr && KNOWN(mask, FMT_MASK) &&
		     !(mask & MRC_CTL_EV_FMT_PROFILE_OP && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS);
	json_t *details = NULL;
	struct profile profile;
	int failed = begin(&profile, __func__, context, "format", id, attr, known, mask & MRC_CTL_EV_FMT_VENDOR_CFG);

	if (failed)
		return end(&profile, failed);
	if (mask & (MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & MRC_CTL_EV_FMT_PROFILE_MODE) {
		memset(&attr->ev_fmt_mode, 0, sizeof(attr->ev_fmt_mode));
		if (profile.settings)
			failed = query_details(&profile, &details);
		if (!failed && details)
			attr->ev_fmt_mode = fmt_mode_of(text_in(details, "fmt", ""));
		json_decref(details);
	}
	if (!failed && mask & MRC_CTL_EV_FMT_PROFILE_OP)
		failed = query_fmt_fields(&profile, attr);
	return end(&profile, failed);
}

/* -- congestion control ------------------------------------------------------------------------------------------- */

#define CC_MASK                                                                                                        \
	(MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE | MRC_CTL_CC_PROFILE_ALGORITHM |                     \
	 MRC_CTL_CC_PROFILE_CONFIG | MRC_CTL_CC_PROFILE_VENDOR_CFG)

/* Write a configuration for an algorithm, or the algorithm alone. A NaN becomes null, which the agent refuses. */
static json_t *cc_settings(const char *algorithm, const struct mrc_ctl_cc_nscc_cfg *config)
{
	if (!config)
		return json_pack("{ss}", "algorithm", algorithm);
	return json_pack(
		"{sssbsIsIsIso?so?so?so?so?sIsIsIsI}", "algorithm", algorithm,
		"disable_qa", config->disable_qa != 0,
		"adjust_bytes_threshold", INT(config->adjust_bytes_threshold),
		"adjust_period_threshold_ns", INT(config->adjust_period_threshold),
		"base_rtt_ns", INT(config->base_rtt),
		"eta", json_real((double)config->eta),
		"fi", json_real((double)config->fi),
		"fi_scale", json_real((double)config->fi_scale),
		"gamma", json_real((double)config->gamma),
		"max_md_jump", json_real((double)config->max_md_jump),
		"max_wnd_bytes", INT(config->max_cwnd),
		"qa_gate", INT(config->qa_gate),
		"qa_threshold_ns", INT(config->qa_threshold),
		"target_qdelay_ns", INT(config->target_delay));
}

static float real_in(const json_t *object, const char *key)
{
	return (float)json_number_value(json_object_get(object, key));
}

static uint32_t capped(const json_t *object, const char *key)
{
	uint64_t number = number_in(object, key, 0);

	return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

static void read_nscc(const json_t *found, struct mrc_ctl_cc_nscc_cfg *config)
{
	memset(config, 0, sizeof(*config));
	config->disable_qa = bool_in(found, "disable_qa", false);
	config->adjust_bytes_threshold = capped(found, "adjust_bytes_threshold");
	config->adjust_period_threshold = capped(found, "adjust_period_threshold");
	config->base_rtt = capped(found, "base_rtt");
	config->eta = real_in(found, "eta");
	config->fi = real_in(found, "fi");
	config->fi_scale = real_in(found, "fi_scale");
	config->gamma = real_in(found, "gamma");
	config->max_md_jump = real_in(found, "max_md_jump");
	config->max_cwnd = capped(found, "max_cwnd");
	config->qa_gate = (uint8_t)number_in(found, "qa_gate", 0);
	config->qa_threshold = capped(found, "qa_threshold");
	config->target_delay = capped(found, "target_delay");
}

static int modify_cc(struct profile *profile, const struct mrc_ctl_cc_profile_attr *attr, int mask)
{
	const char *before = text_in(profile->settings, "algorithm", NULL);
	bool named = mask & MRC_CTL_CC_PROFILE_ALGORITHM;
	bool configured = mask & MRC_CTL_CC_PROFILE_CONFIG;
	bool moves = mask & MRC_CTL_CC_PROFILE_STATE;
	bool nscc = named ? attr->algorithm != NULL : before && !strcmp(before, "nscc");
	int failed = check_states(profile, mask & MRC_CTL_CC_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				  attr->profile_state);

	if (failed)
		return failed;
	if (named && attr->algorithm && strcmp(attr->algorithm, ctl_algorithms[0])) {
		say("no algorithm of congestion control '%s'; there is %s", attr->algorithm, ctl_algorithms[0]);
		return EINVAL;
	}
	if (configured && (!nscc || !attr->cc_config))
		return ctl_wrong("a configuration is of uet-1.0-nscc");
	if (!named && !before && (configured || moves))
		return ctl_wrong("a CC profile needs an algorithm first");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && nscc && !has(profile, "target_qdelay_ns", configured))
		return ctl_wrong("a CC profile needs its configuration to go ONLINE");
	if (named || configured)
		failed = set_settings(profile, cc_settings(nscc ? "nscc" : "fixed", configured ? attr->cc_config : NULL));
	if (!failed && moves)
		failed = set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed = begin(&profile, __func__, context, "cc", id, attr, KNOWN(mask, CC_MASK),
			   mask & MRC_CTL_CC_PROFILE_VENDOR_CFG);

	return end(&profile, failed ? failed : modify_cc(&profile, attr, mask));
}

EXPORT int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask)
{
	bool known = attr && KNOWN(mask, CC_MASK) && !(mask & MRC_CTL_CC_PROFILE_CONFIG && !attr->cc_config);
	json_t *details = NULL;
	struct profile profile;
	int failed = begin(&profile, __func__, context, "cc", id, attr, known, mask & MRC_CTL_CC_PROFILE_VENDOR_CFG);

	if (failed)
		return end(&profile, failed);
	if (mask & (MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (profile.settings && mask & (MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG))
		failed = query_details(&profile, &details);
	if (!failed) {
		const json_t *found = json_object_get(details, "congestion");
		bool nscc = !strcmp(text_in(found, "algorithm", ""), "nscc");

		if (mask & MRC_CTL_CC_PROFILE_ALGORITHM)
			attr->algorithm = nscc ? ctl_algorithms[0] : NULL;
		/* The header's structure has it constant, though a query fills it in. */
		if (mask & MRC_CTL_CC_PROFILE_CONFIG)
			read_nscc(nscc ? found : NULL, (struct mrc_ctl_cc_nscc_cfg *)(uintptr_t)attr->cc_config);
	}
	json_decref(details);
	return end(&profile, failed);
}

/* -- EVs ---------------------------------------------------------------------------------------------------------- */

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
			return ctl_wrong("EVs of the lab are numbers, in the first four bytes");
	return 0;
}

struct mrc_ctl_ev ctl_ev_of(uint64_t number, uint64_t plane)
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

int ctl_entry_of(const struct mrc_ctl_ev *ev, json_t **entry)
{
	uint32_t number;
	int failed = number_of(ev, &number);

	if (!failed && !ev->port)
		failed = ctl_wrong("ports of EVs count from 1");
	*entry = failed ? NULL : json_pack("[II]", INT(number), INT(ev->port - 1));
	return failed;
}

static int set_ev_state(const struct profile *profile, const struct mrc_ctl_ev *ev, enum mrc_ctl_ev_state state)
{
	uint32_t number;
	int failed = number_of(ev, &number);

	if (failed)
		return failed;
	if (state != MRC_CTL_EV_DENIED && state != MRC_CTL_EV_GOOD)
		return ctl_wrong("a controller sets EVs to DENIED or GOOD; the other states are the endpoint's");
	return control_ask(profile->device,
			   COMMAND("ev_set", "s[I]ss", "evs", INT(number), "state",
				   state == MRC_CTL_EV_DENIED ? "DENIED" : "GOOD"),
			   NULL);
}

/* Take a row of the answer to `query_details` apart, `[EV, plane, state]`; return whether a place holds an EV. */
static bool read_row(const json_t *row, struct mrc_ctl_ev *ev, enum mrc_ctl_ev_state *state)
{
	json_int_t number, plane;
	const char *name;

	if (!row || json_unpack((json_t *)(uintptr_t)row, "[IIs!]", &number, &plane, &name))
		return false;
	*ev = ctl_ev_of((uint64_t)number, (uint64_t)plane);
	*state = ev_state_of(name);
	return true;
}

/* Return whether the agent has an EV, and its state. */
static bool find_ev(const json_t *details, const struct mrc_ctl_ev *wanted, enum mrc_ctl_ev_state *state)
{
	struct mrc_ctl_ev ev;
	uint32_t number;
	json_t *row;
	size_t at;

	if (number_of(wanted, &number))
		return false;
	json_array_foreach(json_object_get(details, "evs"), at, row)
		if (read_row(row, &ev, state) && ev.port == wanted->port && !memcmp(ev.val, wanted->val, sizeof(ev.val)))
			return true;
	return false;
}

static int replace_one(const struct profile *profile, const struct mrc_ctl_ev_op_entry *entry)
{
	json_t *old_entry = NULL, *new_entry = NULL;
	uint32_t old, new;
	int failed;

	if (is_unpopulated(&entry->ev_new))
		return ctl_wrong("an EV is replaced by another, not by none");
	if (json_object_get(profile->settings, "entries")) {
		failed = ctl_entry_of(&entry->ev_new, &new_entry);
		if (!failed && !is_unpopulated(&entry->ev))
			failed = ctl_entry_of(&entry->ev, &old_entry);
		if (failed) {
			json_decref(new_entry);
			return failed;
		}
		failed = control_ask(profile->device,
				     COMMAND("profile_entry", "ssso?so", "profile", profile->name, "old", old_entry, "new",
					     new_entry),
				     NULL);
	} else {
		failed = number_of(&entry->ev, &old);
		if (!failed)
			failed = number_of(&entry->ev_new, &new);
		if (!failed && entry->ev.port != entry->ev_new.port)
			failed = ctl_wrong("an EV is replaced by one of the same port");
		if (!failed)
			failed = control_ask(profile->device,
					     COMMAND("ev_replace", "sIsIss", "old", INT(old), "new", INT(new), "profile",
						     profile->name),
					     NULL);
	}
	if (!failed && entry->state == MRC_CTL_EV_DENIED)
		failed = set_ev_state(profile, &entry->ev_new, entry->state);
	return failed;
}

static int operate_on_array(const json_t *details, struct mrc_ctl_ev_profile_attr *attr)
{
	const json_t *rows = json_object_get(details, "evs");
	int count = (int)json_array_size(rows), room = attr->ev_op.entry_count;
	struct mrc_ctl_ev_op_entry *entry = attr->ev_op.entries;

	attr->ev_op.entry_count = count;
	if (room < count)
		return E2BIG;
	for (int i = 0; i < count; i++, entry++)
		if (!read_row(json_array_get(rows, (size_t)i), &entry->ev, &entry->state)) {
			entry->ev = MRC_CTL_EV_UNPOPULATED;
			entry->state = MRC_CTL_EV_UNKNOWN;
		}
	return 0;
}

/* Carry out an operation on EVs, up to the first entry that fails. */
static int operate(const struct profile *profile, struct mrc_ctl_ev_profile_attr *attr)
{
	struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
	json_t *details = NULL;
	int failed = 0;

	if (attr->ev_op.entry_count < 0 || (attr->ev_op.entry_count && !entries))
		return INVALID;
	if (attr->ev_op.op != MRC_CTL_EV_OP_REPLACE_EV)
		failed = query_details(profile, &details);
	if (!failed && attr->ev_op.op == MRC_CTL_EV_OP_QUERY_EV_ARRAY) {
		failed = operate_on_array(details, attr);
		json_decref(details);
		return failed;
	}
	for (int i = 0; !failed && i < attr->ev_op.entry_count; i++) {
		enum mrc_ctl_ev_state state;

		if (attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV) {
			failed = entries[i].flags & ~(uint32_t)MRC_CTL_EV_OP_F_ALL_COPIES ? INVALID
											  : replace_one(profile, &entries[i]);
			continue;
		}
		if (!find_ev(details, &entries[i].ev, &state))
			failed = ENOENT;
		else if (attr->ev_op.op == MRC_CTL_EV_OP_MODIFY_EV_STATE)
			failed = set_ev_state(profile, &entries[i].ev, entries[i].state);
		else
			entries[i].state = state;
	}
	json_decref(details);
	return failed;
}

static int query_fields(const struct profile *profile, struct mrc_ctl_ev_profile_attr *attr)
{
	const json_t *fields = json_object_get(profile->settings, "fields");
	struct mrc_ctl_ev_field *field = attr->ev_fields_op.fields;
	int count = (int)json_array_size(fields), room = attr->ev_fields_op.field_count;
	json_t *each;
	size_t at;

	if (room < 0 || (room && !field))
		return INVALID;
	attr->ev_fields_op.field_count = count;
	if (room < count)
		return E2BIG;
	json_array_foreach(fields, at, each)
		*field++ = (struct mrc_ctl_ev_field){
			.width = (uint32_t)number_in(each, "width", 0),
			.init_val = (uint32_t)number_in(each, "init", 0),
			.min_val = (uint32_t)number_in(each, "minimum", 0),
			.max_val = (uint32_t)number_in(each, "maximum", 0),
			.mask = (uint32_t)number_in(each, "mask", 0),
		};
	return 0;
}

static json_t *fields_of(const struct mrc_ctl_ev_profile_attr *attr)
{
	json_t *fields = json_array();

	for (int i = 0; i < attr->ev_fields_op.field_count; i++) {
		const struct mrc_ctl_ev_field *field = &attr->ev_fields_op.fields[i];

		json_array_append_new(fields,
				      json_pack("{sIsIsIsIsI}", "width", INT(field->width), "init", INT(field->init_val),
						"minimum", INT(field->min_val), "maximum", INT(field->max_val), "mask",
						INT(field->mask)));
	}
	return fields;
}

static int modify_ev_settings(struct profile *profile, const struct mrc_ctl_ev_profile_attr *attr, int mask, bool fields)
{
	json_t *settings = json_object();

	if (mask & MRC_CTL_EV_PROFILE_MODE) {
		bool explicit = attr->ev_mode == MRC_CTL_EV_MODE_EXP;

		json_object_set_new(settings, "mode",
				    json_string(explicit					? "explicit"
						: attr->ev_mode == MRC_CTL_EV_MODE_AUTO ? "auto"
											: "generated"));
		if (explicit && !json_object_get(profile->settings, "entries"))
			json_object_set_new(settings, "entries", json_array());
	}
	if (mask & MRC_CTL_EV_PROFILE_FMT_ID) {
		char format[NAME_BYTES];

		name_profile(format, attr->ev_fmt_profile_id);
		json_object_set_new(settings, "format", json_string(format));
	}
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		json_object_set_new(settings, "count", json_integer(attr->ev_count));
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		json_object_set_new(settings, "ev_min_active", json_integer(attr->ev_min_active ? attr->ev_min_active : 1));
	/* Without a mask there are no events of the profile. */
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK || !profile->settings) {
		int events = mask & MRC_CTL_EV_PROFILE_EVENT_MASK ? attr->ev_event_mask : 0;

		json_object_set_new(settings, "event_states",
				    json_pack("[s*s*]", events & MRC_CTL_EV_GOOD ? "GOOD" : NULL,
					      events & MRC_CTL_EV_ASSUMED_BAD ? "ASSUMED_BAD" : NULL));
	}
	if (fields)
		json_object_set_new(settings, "fields", fields_of(attr));
	return set_settings(profile, settings);
}

/* Check what a step of a profile's life requires. `fields`: whether they come with this call. */
static int check_ev_step(const struct profile *profile, const struct mrc_ctl_ev_profile_attr *attr, int mask, bool fields)
{
	const char *mode = text_in(profile->settings, "mode", "");
	bool generated = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_GEN : !strcmp(mode, "generated");
	bool automatic = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_AUTO : !strcmp(mode, "auto");

	if (attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT) {
		if (!has(profile, "mode", mask & MRC_CTL_EV_PROFILE_MODE) ||
		    !has(profile, "count", mask & MRC_CTL_EV_PROFILE_COUNT) ||
		    (!automatic && !has(profile, "format", mask & MRC_CTL_EV_PROFILE_FMT_ID)))
			return ctl_wrong("an EV profile needs mode, format and count to go OFFLINE");
		if (generated && !has(profile, "fields", fields))
			return ctl_wrong("an EV profile of generated EVs needs fields to go OFFLINE");
	}
	if (attr->profile_state == MRC_CTL_PROFILE_ONLINE && (!has(profile, "ev_min_active", mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)))
		return ctl_wrong("an EV profile needs the minimum of active EVs to go ONLINE");
	return 0;
}

static int check_ev_attr(const struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	if (mask & MRC_CTL_EV_PROFILE_EV_OP && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
		return ctl_wrong("operations on EVs and on fields exclude each other");
	if (mask & MRC_CTL_EV_PROFILE_MODE && attr->ev_mode != MRC_CTL_EV_MODE_AUTO && attr->ev_mode != MRC_CTL_EV_MODE_EXP &&
	    attr->ev_mode != MRC_CTL_EV_MODE_GEN)
		return ctl_wrong("an EV profile's mode is AUTO, EXP or GEN");
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK && !KNOWN(attr->ev_event_mask, MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD))
		return ctl_wrong("events are of changes to GOOD and to ASSUMED_BAD");
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE && mask & MRC_CTL_EV_PROFILE_COUNT && attr->ev_min_active > attr->ev_count)
		return ctl_wrong("the minimum of active EVs is at most their count");
	if (mask & MRC_CTL_EV_PROFILE_EV_OP && (unsigned int)attr->ev_op.op > MRC_CTL_EV_OP_QUERY_EV_ARRAY)
		return INVALID;
	if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && (unsigned int)attr->ev_fields_op.op > MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS)
		return INVALID;
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
		failed = ctl_wrong("fields are at least one");
	if (!failed && moves)
		failed = check_ev_step(profile, attr, mask, fields);
	if (!failed && (fields || mask & EV_SETTINGS))
		failed = modify_ev_settings(profile, attr, mask, fields);
	if (!failed && moves && attr->profile_state == MRC_CTL_PROFILE_OFFLINE)
		failed = set_state(profile, attr->profile_state);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && !fields)
		failed = query_fields(profile, attr);
	/* What has just been set decides how an operation is carried out. */
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP && (fields || mask & EV_SETTINGS))
		failed = read_profile(profile);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP)
		failed = profile->settings ? operate(profile, attr) : ctl_wrong("an EV profile in INIT has no EVs");
	if (!failed && moves && attr->profile_state != MRC_CTL_PROFILE_OFFLINE)
		failed = set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed = begin(&profile, __func__, context, "ev", id, attr, KNOWN(mask, EV_MASK),
			   mask & MRC_CTL_EV_PROFILE_VENDOR_CFG);

	return end(&profile, failed ? failed : modify_ev(&profile, attr, mask));
}

static void query_ev_settings(const struct profile *profile, const json_t *details,
			      struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	static const char *const states[] = {"GOOD", "ASSUMED_BAD", NULL};
	const char *mode = text_in(details, "mode", "");
	const json_t *events = json_object_get(profile->settings, "event_states");

	if (mask & MRC_CTL_EV_PROFILE_MODE) {
		memset(&attr->ev_mode, 0, sizeof(attr->ev_mode));
		if (*mode)
			attr->ev_mode = !strcmp(mode, "EXPLICIT")    ? MRC_CTL_EV_MODE_EXP
					: !strcmp(mode, "GENERATED") ? MRC_CTL_EV_MODE_GEN
								     : MRC_CTL_EV_MODE_AUTO;
	}
	if (mask & MRC_CTL_EV_PROFILE_FMT_ID)
		attr->ev_fmt_profile_id = id_of(text_in(profile->settings, "format", NULL));
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		attr->ev_count = (uint32_t)number_in(details, "count", 0);
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		attr->ev_min_active = (uint32_t)number_in(details, "ev_min_active", 0);
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK) {
		attr->ev_event_mask = (int)ctl_mask_of(events, states);
		/* The default profile reports everything until it has a mask. */
		if (!events && profile->settings)
			attr->ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD;
	}
}

EXPORT int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	bool known = attr && KNOWN(mask, EV_MASK) && !check_ev_attr(attr, mask & ~EV_SETTINGS);
	json_t *details = NULL;
	struct profile profile;
	int failed;

	if (known && ((mask & MRC_CTL_EV_PROFILE_EV_OP && attr->ev_op.op < MRC_CTL_EV_OP_QUERY_EV_STATE) ||
		      (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP &&
		       attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS)))
		return fail(ctl_wrong("a query changes nothing"));
	failed = begin(&profile, __func__, context, "ev", id, attr, known, mask & MRC_CTL_EV_PROFILE_VENDOR_CFG);
	if (failed)
		return end(&profile, failed);
	if (mask & (MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & EV_SETTINGS) {
		if (profile.settings)
			failed = query_details(&profile, &details);
		if (!failed)
			query_ev_settings(&profile, details, attr, mask);
		json_decref(details);
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
	return end(&profile, failed);
}
