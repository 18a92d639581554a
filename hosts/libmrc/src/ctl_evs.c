/* EV profiles: their places, and the states of the EVs in them. */
#include "ctl.h"

#include <arpa/inet.h>

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

int ctl_write_entry(struct writer *writer, const char *key, const struct mrc_ctl_ev *ev)
{
	uint32_t number;
	int failed = number_of(ev, &number);

	if (!failed && !ev->port)
		failed = ctl_wrong("ports of EVs count from 1");
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
		return ctl_wrong("a controller sets EVs to DENIED or GOOD; the other states are the endpoint's");
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
		return ctl_wrong("an EV is replaced by another, not by none");
	if (places) {
		control_begin(&writer, "profile_entry");
		write_text(&writer, "profile", profile->name);
		failed = ctl_write_entry(&writer, "new", &entry->ev_new);
		if (is_unpopulated(&entry->ev))
			write_null(&writer, "old");
		else if (!failed)
			failed = ctl_write_entry(&writer, "old", &entry->ev);
	} else {
		failed = number_of(&entry->ev, &old);
		if (!failed)
			failed = number_of(&entry->ev_new, &new);
		if (!failed && entry->ev.port != entry->ev_new.port)
			failed = ctl_wrong("an EV is replaced by one of the same port");
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

		entry->ev = taken ? ctl_ev_of(each->first->number, each->first->next->number) : MRC_CTL_EV_UNPOPULATED;
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
		failed = ctl_query_details(profile, &details);
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

	ctl_begin_settings(&writer, profile);
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
		ctl_name_profile(format, attr->ev_fmt_profile_id);
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
	return ctl_end_settings(&writer, profile);
}

/* Check what a step of a profile's life requires. `fields`: whether they come with this call. */
static int check_ev_step(const struct profile *profile, const struct mrc_ctl_ev_profile_attr *attr, int mask, bool fields)
{
	const char *mode = json_text(profile->settings, "mode", "");
	bool generated = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_GEN : !strcmp(mode, "generated");
	bool automatic = mask & MRC_CTL_EV_PROFILE_MODE ? attr->ev_mode == MRC_CTL_EV_MODE_AUTO : !strcmp(mode, "auto");

	if (attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT) {
		if (!ctl_has(profile, "mode", mask & MRC_CTL_EV_PROFILE_MODE) ||
		    !ctl_has(profile, "count", mask & MRC_CTL_EV_PROFILE_COUNT) ||
		    (!automatic && !ctl_has(profile, "format", mask & MRC_CTL_EV_PROFILE_FMT_ID)))
			return ctl_wrong("an EV profile needs mode, format and count to go OFFLINE");
		if (generated && !ctl_has(profile, "fields", fields))
			return ctl_wrong("an EV profile of generated EVs needs fields to go OFFLINE");
	}
	if (attr->profile_state == MRC_CTL_PROFILE_ONLINE && (!ctl_has(profile, "ev_min_active", mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)))
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
		failed = ctl_check_states(profile, mask & MRC_CTL_EV_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				      attr->profile_state);
	if (!failed && fields && (attr->ev_fields_op.field_count < 1 || !attr->ev_fields_op.fields))
		failed = ctl_wrong("fields are at least one");
	if (!failed && moves)
		failed = check_ev_step(profile, attr, mask, fields);
	if (!failed && (fields || mask & EV_SETTINGS))
		failed = modify_ev_settings(profile, attr, mask, fields);
	if (!failed && moves && ctl_is_first(attr->profile_state))
		failed = ctl_set_state(profile, attr->profile_state);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && !fields)
		failed = query_fields(profile, attr);
	/* What has just been set decides how an operation is carried out. */
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP && (fields || mask & EV_SETTINGS))
		failed = ctl_read_profile(profile);
	if (!failed && mask & MRC_CTL_EV_PROFILE_EV_OP)
		failed = profile->settings ? operate(profile, attr) : ctl_wrong("an EV profile in INIT has no EVs");
	if (!failed && moves && !ctl_is_first(attr->profile_state))
		failed = ctl_set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, EV_MASK))
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_EV_PROFILE_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	failed = ctl_find_profile(&profile, context, "ev", id);
	if (failed)
		return ctl_fail(failed);
	failed = modify_ev(&profile, attr, mask);
	control_free(&profile.answer);
	return ctl_fail(failed);
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
		attr->ev_fmt_profile_id = ctl_id_of(json_text(profile->settings, "format", NULL));
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		attr->ev_count = (uint32_t)json_number(details->root, "count", 0);
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		attr->ev_min_active = (uint32_t)json_number(details->root, "ev_min_active", 0);
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK) {
		attr->ev_event_mask = (int)ctl_mask_of(events, states);
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
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_EV_PROFILE_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	if ((mask & MRC_CTL_EV_PROFILE_EV_OP && attr->ev_op.op < MRC_CTL_EV_OP_QUERY_EV_STATE) ||
	    (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS))
		return ctl_fail(ctl_wrong("a query changes nothing"));
	failed = ctl_find_profile(&profile, context, "ev", id);
	if (failed)
		return ctl_fail(failed);
	if (mask & (MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & EV_SETTINGS) {
		if (profile.settings)
			failed = ctl_query_details(&profile, &details);
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
	return ctl_fail(failed);
}
