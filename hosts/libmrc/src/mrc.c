/* The application interface of MRC, `mrc.h`. */
#define MRC_API_VER_USED MRC_API_VER_LATEST
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>

/* -- the device --------------------------------------------------------------------------------------------------- */

EXPORT int mrc_query_device_ex(struct ibv_context *base, struct mrc_context *mcontext, struct mrc_device_attr *attr,
			       int *supported)
{
	struct answer answer;
	int failed;

	if (!base && mcontext)
		base = &mcontext->lab->verbs.context;
	if (!base || !attr || !supported)
		return fail(INVALID);
	*supported = 0;
	memset(attr, 0, sizeof(*attr));
	if (!is_lab(base))
		return 0;
	failed = lab_ask(lab_of(base), REQUEST("query_device", ""), &answer);
	if (failed)
		return fail(failed);
	*supported = lab_of(base)->mrc;
	if (*supported) {
		attr->mrc_protocol_version = (uint32_t)number_in(answer.root, "mrc_protocol_version", 0);
		attr->wimm_attr.max_wimm = (uint16_t)number_in(answer.root, "max_wimm", 0);
		attr->wimm_attr.max_wimm_dest = (uint16_t)number_in(answer.root, "max_wimm_dest", 0);
		attr->mpr_attr.max_mpr = (uint8_t)number_in(answer.root, "max_mpr", 0);
		attr->mpr_attr.mpr_resolution = (uint8_t)number_in(answer.root, "mpr_resolution", 0);
		attr->qp_attr.max_qp_hint = (uint32_t)number_in(answer.root, "max_qp_hint", 0);
		attr->cap = (uint32_t)number_in(answer.root, "cap", 0);
	}
	answer_free(&answer);
	return 0;
}

EXPORT int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported)
{
	return mrc_query_device_ex(context, NULL, attr, supported);
}

EXPORT void mrc_query_version(uint32_t *current, uint32_t *last, uint32_t *vendor, uint32_t *last_vendor)
{
	if (current)
		*current = MRC_API_CURRENT_VERSION;
	if (last)
		*last = MRC_API_LAST_SUPPORTED_VERSION;
	if (vendor)
		*vendor = MRC_VENDOR_API_CURRENT_VERSION;
	if (last_vendor)
		*last_vendor = MRC_VENDOR_API_LAST_SUPPORTED_VERSION;
}

/* Versions up to ours are accepted: all of them mean the same here. Programs also pass 1, a version of the protocol. */
EXPORT struct mrc_context *mrc_create_context(struct ibv_context *base, struct mrc_context_attr *attr)
{
	struct mrc_context *context;

	if (!base || !is_lab(base) || !lab_of(base)->mrc)
		return give_up(NULL, refused(base ? EOPNOTSUPP : EINVAL, "mrc_create_context: %s",
					     base ? "this device has no MRC" : "no device"));
	if (attr && (attr->mrc_api_version_used > MRC_API_CURRENT_VERSION ||
		     attr->mrc_vendor_api_version_used > MRC_VENDOR_API_CURRENT_VERSION)) {
		say("mrc_create_context: the program uses version %#x of mrc.h (vendor: %#x); this library has %#x (%#x)",
		    attr->mrc_api_version_used, attr->mrc_vendor_api_version_used, (unsigned int)MRC_API_CURRENT_VERSION,
		    (unsigned int)MRC_VENDOR_API_CURRENT_VERSION);
		return give_up(NULL, EOPNOTSUPP);
	}
	context = calloc(1, sizeof(*context));
	if (!context)
		return NULL;
	context->lab = lab_of(base);
	context->api_version = attr && attr->mrc_api_version_used ? attr->mrc_api_version_used : MRC_API_CURRENT_VERSION;
	return context;
}

EXPORT int mrc_destroy_context(struct mrc_context *context)
{
	if (!context)
		return fail(INVALID);
	free(context);
	return 0;
}

/* -- completions -------------------------------------------------------------------------------------------------- */

EXPORT int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel)
{
	*channel = (struct mrc_comp_channel *)lab_create_channel(&context->lab->verbs.context);
	return *channel ? 0 : errno;
}

EXPORT int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd)
{
	if (!channel || !fd)
		return fail(INVALID);
	*fd = ((struct ibv_comp_channel *)channel)->fd;
	return 0;
}

EXPORT int mrc_destroy_comp_channel(struct mrc_comp_channel *channel)
{
	return lab_destroy_channel((struct ibv_comp_channel *)channel);
}

EXPORT struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *user, struct mrc_comp_channel *channel,
				    int vector)
{
	return (struct mrc_cq *)lab_create_cq(&context->lab->verbs.context, cqe, user,
					      (struct ibv_comp_channel *)channel, vector);
}

EXPORT int mrc_poll_cq(struct mrc_cq *cq, int count, struct ibv_wc *wc)
{
	return lab_poll_cq((struct ibv_cq *)cq, count, wc);
}

EXPORT int mrc_destroy_cq(struct mrc_cq *cq)
{
	return lab_destroy_cq((struct ibv_cq *)cq);
}

EXPORT int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only)
{
	return lab_req_notify_cq((struct ibv_cq *)cq, solicited_only);
}

EXPORT int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **user)
{
	return lab_get_cq_event((struct ibv_comp_channel *)channel, (struct ibv_cq **)cq, user);
}

EXPORT void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int count)
{
	lab_ack_cq_events((struct ibv_cq *)cq, count);
}

/* -- hints -------------------------------------------------------------------------------------------------------- */

#define HINTS (MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS | MRC_QP_HINT_NUM_REMOTE_RECV_PEERS)

/* Vendors' configuration is accepted and means nothing: the lab is no vendor. */
static json_t *hints_of(const struct mrc_qp_hint_attr *attr, int mask)
{
	return json_pack(
		"{so*so*so*}",
		"num_qps_per_peer", mask & MRC_QP_HINT_NUM_QPS_PER_PEER ? json_integer(attr->num_qps_per_peer) : NULL,
		"num_send_peers", mask & MRC_QP_HINT_NUM_SEND_PEERS ? json_integer(attr->num_send_peers) : NULL,
		"num_remote_recv_peers",
		mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS ? json_integer(attr->num_remote_recv_peers) : NULL);
}

EXPORT struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *attr)
{
	struct mrc_qp_hint *hint;
	struct answer answer;
	int failed;

	if (!context || !attr)
		return give_up(NULL, INVALID);
	hint = calloc(1, sizeof(*hint));
	if (!hint)
		return NULL;
	failed = lab_ask(context->lab, REQUEST("create_hint", "so", "attributes", hints_of(&attr->attr, HINTS)), &answer);
	if (failed)
		return give_up(hint, failed);
	hint->lab = context->lab;
	hint->number = (uint32_t)number_in(answer.root, "hint", 0);
	answer_free(&answer);
	return hint;
}

EXPORT int mrc_destroy_qp_hint(struct mrc_qp_hint *hint)
{
	int failed;

	if (!hint)
		return fail(INVALID);
	failed = lab_ask(hint->lab, REQUEST("destroy_hint", "sI", "hint", INT(hint->number)), NULL);
	if (!failed)
		free(hint);
	return fail(failed);
}

EXPORT int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
	const json_t *values;
	struct answer answer;
	int failed;

	if (!hint || !attr || mask & ~(HINTS | MRC_QP_HINT_VENDOR_CFG))
		return fail(INVALID);
	failed = lab_ask(hint->lab, REQUEST("query_hint", "sI", "hint", INT(hint->number)), &answer);
	if (failed)
		return fail(failed);
	values = json_object_get(answer.root, "attributes");
	memset(attr, 0, sizeof(*attr));
	attr->num_qps_per_peer = (int)number_in(values, "num_qps_per_peer", 0);
	attr->num_send_peers = (int)number_in(values, "num_send_peers", 0);
	attr->num_remote_recv_peers = (int)number_in(values, "num_remote_recv_peers", 0);
	answer_free(&answer);
	return 0;
}

EXPORT int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
	if (!hint || !attr || mask & ~(HINTS | MRC_QP_HINT_VENDOR_CFG))
		return fail(INVALID);
	return fail(lab_ask(hint->lab, REQUEST("modify_hint", "sIso", "hint", INT(hint->number), "attributes",
					       hints_of(attr, mask)), NULL));
}

/* -- queue pairs -------------------------------------------------------------------------------------------------- */

EXPORT struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *attr)
{
	const uint64_t operations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	if (!context || !attr || !attr->pd || attr->pd->context != &context->lab->verbs.context)
		return give_up(NULL, refused(EINVAL, "mrc_create_qp: a context, and a protection domain of its device, are needed"));
	if (attr->send_ops_flags & ~operations || attr->protocol_version > MRC_PROTOCOL_VERSION_1)
		return give_up(NULL, refused(EOPNOTSUPP, "mrc_create_qp: MRC 1.0 has RDMA_WRITE and RDMA_WRITE_WITH_IMM only"));
	init.qp_context = attr->qp_context;
	init.send_cq = (struct ibv_cq *)attr->send_cq;
	init.recv_cq = (struct ibv_cq *)attr->recv_cq;
	init.cap = attr->cap;
	init.sq_sig_all = attr->sq_sig_all;
	qp = lab_create_qp(attr->pd, &init, true);
	if (qp)
		attr->cap = init.cap;
	return (struct mrc_qp *)qp;
}

EXPORT int mrc_destroy_qp(struct mrc_qp *qp)
{
	return lab_destroy_qp((struct ibv_qp *)qp);
}

/* Attributes that RC has and MRC has not, which programs set nevertheless: they have no effect. */
#define WITHOUT_MEANING                                                                                               \
	(IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |                   \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define MRC_ATTRIBUTES                                                                                                \
	(MRC_QP_MAX_WIMM | MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR | MRC_QP_MPR_DEST | MRC_QP_TIMEOUT |                      \
	 MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID | MRC_QP_HINT | MRC_QP_RETRY_CNT | MRC_QP_CAP |                   \
	 MRC_QP_VENDOR_CFG)

EXPORT int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *more, int more_mask)
{
	static const struct ibv_qp_attr none;

	if (!qp || (mask && !attr) || (more_mask && !more) || more_mask & ~MRC_ATTRIBUTES)
		return INVALID;
	return lab_modify_qp((struct ibv_qp *)qp, attr ? attr : &none, mask & ~WITHOUT_MEANING, more, more_mask);
}

EXPORT int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *more, int more_mask,
			struct mrc_qp_init_attr *init)
{
	struct ibv_qp_init_attr plain;
	int failed;

	(void)mask;
	if (!qp || more_mask & ~MRC_ATTRIBUTES)
		return INVALID;
	failed = lab_query_qp((struct ibv_qp *)qp, attr, &plain, more);
	if (failed || !init)
		return failed;
	memset(init, 0, sizeof(*init));
	init->qp_context = plain.qp_context;
	init->send_cq = (struct mrc_cq *)plain.send_cq;
	init->recv_cq = (struct mrc_cq *)plain.recv_cq;
	init->cap = plain.cap;
	init->sq_sig_all = plain.sq_sig_all;
	init->pd = ((struct ibv_qp *)qp)->pd;
	init->send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	init->protocol_version = MRC_PROTOCOL_VERSION_1;
	return 0;
}

EXPORT int mrc_get_qpn(struct mrc_qp *qp, uint32_t *number)
{
	if (!qp || !number)
		return fail(INVALID);
	*number = ((struct ibv_qp *)qp)->qp_num;
	return 0;
}

EXPORT int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return fail(lab_post_recv((struct ibv_qp *)qp, wr, bad));
}

EXPORT int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return lab_post_send((struct ibv_qp *)qp, wr, bad);
}

/* -- events ------------------------------------------------------------------------------------------------------- */

EXPORT int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event)
{
	struct ibv_async_event found;
	int failed = lab_get_async_event(context->lab, &found, true);

	if (failed)
		return fail(failed);
	event->event_type = found.event_type;
	memcpy(&event->element, &found.element, sizeof(event->element));
	return 0;
}

EXPORT void mrc_ack_async_event(struct mrc_async_event *event)
{
	struct ibv_async_event plain = {.event_type = event->event_type};

	memcpy(&plain.element, &event->element, sizeof(plain.element));
	lab_ack_async_event(&plain);
}
