/* EV format profiles: how the bits of an EV become fields of headers. */
#include "ctl.h"

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
		return ctl_wrong("an EV format profile needs a mode first");
	mode = mask & MRC_CTL_EV_FMT_PROFILE_MODE ? attr->ev_fmt_mode : fmt_mode_of(before);
	fmt = fmt_of(mode, fields ? sum_of_widths(attr) : sum_of_numbers(widths));
	if (!fmt)
		return ctl_wrong("an EV format's mode is STEV, SRV6 or UDP");
	ctl_begin_settings(&writer, profile);
	write_text(&writer, "fmt", fmt);
	if (fields) {
		write_open(&writer, "widths", '[');
		for (int i = 0; i < attr->ev_fmt_op.fmt_field_count; i++)
			write_number(&writer, NULL, attr->ev_fmt_op.fmt_fields[i].width);
		write_close(&writer, ']');
	}
	return ctl_end_settings(&writer, profile);
}

static int modify_fmt(struct profile *profile, struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	bool moves = mask & MRC_CTL_EV_FMT_PROFILE_STATE;
	bool operates = mask & MRC_CTL_EV_FMT_PROFILE_OP;
	bool fields = operates && attr->ev_fmt_op.op == MRC_CTL_EV_FMT_OP_MODIFY_FIELDS;
	int failed = ctl_check_states(profile, mask & MRC_CTL_EV_FMT_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
				  attr->profile_state);

	if (failed)
		return failed;
	if (operates && !fields && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS)
		return EINVAL;
	if (fields && (attr->ev_fmt_op.fmt_field_count < 1 || !attr->ev_fmt_op.fmt_fields))
		return ctl_wrong("an EV format has at least one field");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_OFFLINE && profile->state == MRC_CTL_PROFILE_INIT &&
	    !ctl_has(profile, "fmt", mask & MRC_CTL_EV_FMT_PROFILE_MODE))
		return ctl_wrong("an EV format profile needs a mode to go OFFLINE");
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && !ctl_has(profile, "widths", fields))
		return ctl_wrong("an EV format profile needs fields to go ONLINE");
	if (fields || mask & MRC_CTL_EV_FMT_PROFILE_MODE)
		failed = modify_fmt_settings(profile, attr, mask, fields);
	if (!failed && operates && !fields)
		failed = query_fmt_fields(profile, attr);
	if (!failed && moves)
		failed = ctl_set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					 struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, FMT_MASK))
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_EV_FMT_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	failed = ctl_find_profile(&profile, context, "format", id);
	if (failed)
		return ctl_fail(failed);
	failed = modify_fmt(&profile, attr, mask);
	control_free(&profile.answer);
	return ctl_fail(failed);
}

EXPORT int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct control_answer details = {.root = NULL};
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, FMT_MASK))
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_EV_FMT_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	if (mask & MRC_CTL_EV_FMT_PROFILE_OP && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS)
		return ctl_fail(EINVAL);
	failed = ctl_find_profile(&profile, context, "format", id);
	if (failed)
		return ctl_fail(failed);
	if (mask & (MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (mask & MRC_CTL_EV_FMT_PROFILE_MODE) {
		memset(&attr->ev_fmt_mode, 0, sizeof(attr->ev_fmt_mode));
		if (profile.settings)
			failed = ctl_query_details(&profile, &details);
		if (!failed && details.root)
			attr->ev_fmt_mode = fmt_mode_of(json_text(details.root, "fmt", ""));
		control_free(&details);
	}
	if (!failed && mask & MRC_CTL_EV_FMT_PROFILE_OP)
		failed = query_fmt_fields(&profile, attr);
	control_free(&profile.answer);
	return ctl_fail(failed);
}
