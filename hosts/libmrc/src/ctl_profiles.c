/* Profiles of all kinds: their names, states and settings. */
#include "ctl.h"

static const char *const ctl_state_names[] = {"INIT", "OFFLINE", "ONLINE"};

void ctl_name_profile(char *name, uint64_t id)
{
	if (id)
		snprintf(name, NAME_BYTES, "c-%llu", (unsigned long long)id);
	else
		strcpy(name, "default");
}

uint64_t ctl_id_of(const char *name)
{
	return name && !strncmp(name, "c-", 2) ? strtoull(name + 2, NULL, 10) : 0;
}

/* Read a profile again. */
int ctl_read_profile(struct profile *profile)
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
			if (!strcmp(state, ctl_state_names[i]))
				profile->state = (enum mrc_ctl_profile_state)i;
	}
	return 0;
}

int ctl_find_profile(struct profile *profile, const struct mrc_context *context, const char *kind, uint64_t id)
{
	memset(profile, 0, sizeof(*profile));
	profile->device = ctl_device_of(context);
	profile->kind = kind;
	ctl_name_profile(profile->name, id);
	return ctl_read_profile(profile);
}

/* Whether a setting is there: before, or with this call. */
bool ctl_has(const struct profile *profile, const char *key, bool now)
{
	return now || json_get(profile->settings, key);
}

void ctl_begin_profile(struct writer *writer, const char *verb, const struct profile *profile)
{
	control_begin(writer, verb);
	write_text(writer, "kind", profile->kind);
	write_text(writer, "name", profile->name);
}

/* Begin a request that changes settings, or makes the profile with them. */
void ctl_begin_settings(struct writer *writer, const struct profile *profile)
{
	ctl_begin_profile(writer, profile->settings ? "profile_modify" : "profile_create", profile);
	write_open(writer, "settings", '{');
}

int ctl_end_settings(struct writer *writer, const struct profile *profile)
{
	write_close(writer, '}');
	return control_ask(profile->device, writer, NULL);
}

int ctl_set_state(const struct profile *profile, enum mrc_ctl_profile_state state)
{
	struct writer writer;
	int failed;

	ctl_begin_profile(&writer, "profile_state", profile);
	write_text(&writer, "state", ctl_state_names[state]);
	failed = control_ask(profile->device, &writer, NULL);
	if (failed || state != MRC_CTL_PROFILE_INIT || !strcmp(profile->name, "default"))
		return failed;
	/* In INIT it is as if it had never been changed. */
	ctl_begin_profile(&writer, "profile_delete", profile);
	return control_ask(profile->device, &writer, NULL);
}

/* Check the states that a call names: the one that the profile must be in, and one to which there is a step. */
int ctl_check_states(const struct profile *profile, bool is, enum mrc_ctl_profile_state current, bool to,
			enum mrc_ctl_profile_state wanted)
{
	if (is && current != profile->state) {
		say("%s profile %s is %s", profile->kind, profile->name, ctl_state_names[profile->state]);
		return EINVAL;
	}
	if (!to)
		return 0;
	if ((unsigned int)wanted > MRC_CTL_PROFILE_ONLINE)
		return ctl_wrong("a profile's state is INIT, OFFLINE or ONLINE");
	if (wanted + 1 != profile->state && wanted != profile->state + 1) {
		say("%s profile %s is %s and cannot go to %s", profile->kind, profile->name, ctl_state_names[profile->state],
		    ctl_state_names[wanted]);
		return EINVAL;
	}
	return 0;
}

/* Whether the state comes before what else a call does: fields and EVs change in OFFLINE. */
bool ctl_is_first(enum mrc_ctl_profile_state wanted)
{
	return wanted == MRC_CTL_PROFILE_OFFLINE;
}

int ctl_query_details(const struct profile *profile, struct control_answer *answer)
{
	struct writer writer;

	ctl_begin_profile(&writer, "profile", profile);
	return control_ask(profile->device, &writer, answer);
}
