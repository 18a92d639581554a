/*
 * The functions of `mrc_ctl.h`, by requests to the agent's control socket.
 *
 * Profile N is the agent's profile `c-N`, and profile 0 its default one. The agent holds all state, so that several
 * controllers see the same; a profile that it does not have is in INIT.
 */
#include "ctl.h"

#include <arpa/inet.h>

#define MAX_DSCP 63
#define PROBE_POLL_NS 1000000
#define EVENT_BYTES_1_0_0 offsetof(struct mrc_ctl_ev_event, state)

_Static_assert(sizeof(struct mrc_ctl_ev_event) == 56, "an event has 56 bytes since version 1.0.1");
_Static_assert(EVENT_BYTES_1_0_0 == 48, "an event has 48 bytes in version 1.0.0");

/* -- the device --------------------------------------------------------------------------------------------------- */

static int query_device(struct lab_context *lab, struct mrc_ctl_device_attr *attr)
{
	/* In the order of their bits; both formats of SRv6 have the same one. */
	static const char *const formats[] = {"STEV32", "SRV6_USID128", "UDP16", NULL};
	static const char *const modes[] = {"AUTO", "EXPLICIT", "GENERATED", NULL};
	json_t *answer;
	uint64_t most;
	int failed;

	failed = control_ask(lab->device->path, COMMAND("device", ""), &answer);
	if (failed)
		return failed;
	memset(attr, 0, sizeof(*attr));
	attr->mrc_ctl_protocol_version = (uint32_t)number_in(answer, "mrc_ctl_protocol_version", 0);
	most = number_in(answer, "max_profiles", 0);
	attr->ev.ev_max_fmt_profiles = (uint32_t)most;
	attr->ev.ev_max_profiles = (uint32_t)most;
	attr->ev.ev_max_count_profile = (uint32_t)number_in(answer, "ev_max_count_profile", 0);
	attr->ev.ev_max_count = (uint32_t)most * attr->ev.ev_max_count_profile;
	attr->ev.ev_free_count = (uint32_t)number_in(answer, "free_evs", 0);
	/* Every plane has equally many. */
	attr->ev.ev_count_align = (uint32_t)json_array_size(json_object_get(answer, "ports"));
	attr->ev.ev_max_width = 32;
	attr->ev.ev_fmt_mode_mask = ctl_mask_of(json_object_get(answer, "ev_formats"), formats);
	attr->ev.ev_mode_mask = ctl_mask_of(json_object_get(answer, "ev_modes"), modes);
	attr->cc.cc_max_profiles = (uint32_t)most;
	attr->cc.algorithms = (const char **)ctl_algorithms;
	attr->phy_port_mask = (uint32_t)number_in(answer, "phy_port_mask", 0);
	attr->opt_attr = MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE | MRC_CTL_OPT_CAP_EV_EVENT |
			 MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT | MRC_CTL_OPT_CAP_EP_OP_EV_PROBE;
	json_decref(answer);
	return 0;
}

EXPORT int mrc_ctl_query_device_ex(struct ibv_context *base, struct mrc_context *mcontext,
				   struct mrc_ctl_device_attr *attr, int *supported)
{
	if (!base && mcontext)
		base = &mcontext->lab->verbs.context;
	if (!base || !attr || !supported)
		return fail(INVALID);
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
		return fail(INVALID);
	if (!is_lab(base) || !lab_of(base)->mrc)
		return fail(refused(EOPNOTSUPP, "%s: this device has no MRC", __func__));
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
	json_t *answer, *row;
	int failed;

	if (!context || !attr || !KNOWN(mask, MRC_CTL_PORT_ADMIN_STATE))
		return fail(INVALID);
	failed = control_ask(ctl_device_of(context), COMMAND("device", ""), &answer);
	if (failed)
		return fail(failed);
	row = port ? json_array_get(json_object_get(answer, "ports"), port - 1U) : NULL;
	if (!row)
		failed = ctl_wrong("mrc_ctl_query_port: the host has no such port");
	else if (mask & MRC_CTL_PORT_ADMIN_STATE)
		attr->port_admin_state =
			bool_in(row, "enabled", true) ? MRC_CTL_PORT_ADMIN_ENABLED : MRC_CTL_PORT_ADMIN_DISABLED;
	json_decref(answer);
	return fail(failed);
}

EXPORT int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
	struct mrc_ctl_port_attr before;

	if (!context || !attr || !KNOWN(mask, MRC_CTL_PORT_ADMIN_STATE))
		return fail(INVALID);
	if (mask & MRC_CTL_PORT_ADMIN_STATE && (unsigned int)attr->port_admin_state > MRC_CTL_PORT_ADMIN_ENABLED)
		return fail(INVALID);
	if (mrc_ctl_query_port(context, port, &before, mask))
		return -1;
	if (!mask)
		return 0;
	return fail(control_ask(ctl_device_of(context),
				    COMMAND("port", "sIsb", "port", INT(port) - 1, "up",
					    attr->port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED),
				    NULL));
}

/* -- events of EVs ------------------------------------------------------------------------------------------------ */

EXPORT struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *user,
						 struct mrc_comp_channel *channel, int vector)
{
	struct ibv_cq *cq;
	int failed;

	if (!context)
		return give_up(NULL, INVALID);
	failed = control_may(ctl_device_of(context));
	if (failed)
		return give_up(NULL, failed);
	cq = lab_create_cq(&context->lab->verbs.context, cqe, user, (struct ibv_comp_channel *)channel, vector);
	if (!cq)
		return NULL;
	CONTAINER(cq, struct lab_cq, base)->ev_event_bytes =
		context->api_version >= MRC_CTL_API_VER(1, 0, 1) ? sizeof(struct mrc_ctl_ev_event) : EVENT_BYTES_1_0_0;
	failed = lab_ask(context->lab, REQUEST("watch_evs", "sI", "cq", INT(cq->handle)), NULL);
	if (failed) {
		lab_destroy_cq(cq);
		return give_up(NULL, failed);
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
		return -INVALID;
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
			.ev = ctl_ev_of(entry->qp_num, entry->byte_len),
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
	json_t *answer, *entry, *evs = json_array();
	int failed = 0;

	inet_ntop(AF_INET6, req[batch->members[0]].dgid.raw, address, sizeof(address));
	for (int i = 0; i < batch->count && !failed; i++) {
		failed = ctl_entry_of(&req[batch->members[i]].req_ev, &entry);
		json_array_append_new(evs, entry);
	}
	if (failed) {
		json_decref(evs);
		return failed;
	}
	failed = control_ask(ctl_device_of(context),
			     COMMAND("ev_probe", "sssosIsI", "address", address, "evs", evs, "timeout_ns",
				     INT(timeout ? timeout : 1), "dscp", INT(dscp)),
			     &answer);
	if (failed)
		return failed;
	batch->number = number_in(answer, "batch", 0);
	json_decref(answer);
	return 0;
}

/* Ask for the answers of a batch; once all are there, or too late, they go to `rsp`, and `*done` is true. */
static int take_batch(const struct mrc_context *context, const struct batch *batch, const struct mrc_ctl_ep_req *req,
		      struct mrc_ctl_ep_rsp *rsp, int *num_rsp, bool *done)
{
	json_t *answer, *each;
	size_t at;
	int failed;

	failed = control_ask(ctl_device_of(context), COMMAND("ev_probe_result", "sI", "batch", INT(batch->number)), &answer);
	if (failed)
		return failed;
	*done = !number_in(answer, "waiting", 0);
	json_array_foreach(*done ? json_object_get(answer, "results") : NULL, at, each) {
		uint64_t index = number_in(each, "request", 0);

		if (!json_is_number(json_object_get(each, "rtt_ns")) || index >= (uint64_t)batch->count)
			continue;
		rsp[*num_rsp].req_id = req[batch->members[index]].req_id;
		rsp[*num_rsp].port = (uint8_t)(number_in(each, "port", 0) + 1);
		rsp[*num_rsp].rtt = (unsigned int)number_in(each, "rtt_ns", 0);
		rsp[*num_rsp].adj_svc_time = 0;
		(*num_rsp)++;
	}
	json_decref(answer);
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
		return fail(INVALID);
	*num_rsp = 0;
	if (type == MRC_CTL_EP_OP_PORT_STATUS_UPDATE) {
		say("%s: the endpoint tells its peers itself when a port changes", __func__);
		return fail(ENOTSUP);
	}
	if (type != MRC_CTL_EP_OP_EV_PROBE)
		return fail(INVALID);
	for (int i = 0; i < num_req; i++)
		for (int j = 0; j < i; j++)
			if (req[i].req_id == req[j].req_id)
				return fail(ctl_wrong("the numbers of requests differ within a batch"));
	failed = control_may(ctl_device_of(context));
	if (failed || !num_req)
		return fail(failed);
	batches = calloc((size_t)num_req, sizeof(*batches));
	members = calloc((size_t)num_req, sizeof(*members));
	failed = batches && members ? probe(context, batches, members, req, num_req, dscp, timeout, rsp, num_rsp) : ENOMEM;
	free(batches);
	free(members);
	return fail(failed);
}
