/* Congestion control profiles. */
#include "ctl.h"

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
	int failed = ctl_check_states(profile, mask & MRC_CTL_CC_PROFILE_CUR_STATE, attr->cur_profile_state, moves,
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
	if (moves && attr->profile_state == MRC_CTL_PROFILE_ONLINE && nscc && !ctl_has(profile, "target_qdelay_ns", configured))
		return ctl_wrong("a CC profile needs its configuration to go ONLINE");
	if (named || configured) {
		struct writer writer;

		ctl_begin_settings(&writer, profile);
		write_text(&writer, "algorithm", nscc ? "nscc" : "fixed");
		if (configured)
			write_nscc(&writer, attr->cc_config);
		failed = ctl_end_settings(&writer, profile);
	}
	if (!failed && moves)
		failed = ctl_set_state(profile, attr->profile_state);
	return failed;
}

EXPORT int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr,
				     int mask)
{
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, CC_MASK))
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_CC_PROFILE_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	failed = ctl_find_profile(&profile, context, "cc", id);
	if (failed)
		return ctl_fail(failed);
	failed = modify_cc(&profile, attr, mask);
	control_free(&profile.answer);
	return ctl_fail(failed);
}

EXPORT int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask)
{
	struct control_answer details = {.root = NULL};
	struct profile profile;
	int failed;

	if (!context || !attr || !KNOWN(mask, CC_MASK))
		return ctl_fail(EINVAL);
	if (mask & MRC_CTL_CC_PROFILE_VENDOR_CFG)
		return ctl_fail(ctl_no_vendor(__func__));
	if (mask & MRC_CTL_CC_PROFILE_CONFIG && !attr->cc_config)
		return ctl_fail(EINVAL);
	failed = ctl_find_profile(&profile, context, "cc", id);
	if (failed)
		return ctl_fail(failed);
	if (mask & (MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE)) {
		attr->profile_state = profile.state;
		attr->cur_profile_state = profile.state;
	}
	if (profile.settings && mask & (MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG))
		failed = ctl_query_details(&profile, &details);
	if (!failed) {
		const struct json *found = json_get(details.root, "congestion");
		bool nscc = !strcmp(json_text(found, "algorithm", ""), "nscc");

		if (mask & MRC_CTL_CC_PROFILE_ALGORITHM)
			attr->algorithm = nscc ? ctl_algorithms[0] : NULL;
		/* The header's structure has it constant, though a query fills it in. */
		if (mask & MRC_CTL_CC_PROFILE_CONFIG)
			read_nscc(nscc ? found : NULL, (struct mrc_ctl_cc_nscc_cfg *)(uintptr_t)attr->cc_config);
	}
	control_free(&details);
	control_free(&profile.answer);
	return ctl_fail(failed);
}
