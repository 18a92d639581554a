/* What a device tells about itself, and its asynchronous events. */
#include "internal.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define VENDOR_ID 0x004d5243 /* "MRC": no vendor has it */
#define PAGE_SIZES 0xfffffffffffff000

uint32_t lab_mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

int lab_query_device(struct ibv_context *base, struct ibv_device_attr *attr)
{
	struct lab_context *context = lab_of(base);
	struct answer answer;
	int failed = lab_ask(context, REQUEST("query_device", ""), &answer);

	if (failed)
		return failed;
	memset(attr, 0, sizeof(*attr));
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%d.0.0", LAYOUT_VERSION);
	attr->node_guid = attr->sys_image_guid = context->device->guid;
	/* Registered memory is the program's own, and counts towards no limit of the agent. */
	attr->max_mr_size = (uint64_t)1 << 44;
	attr->page_size_cap = PAGE_SIZES;
	attr->vendor_id = VENDOR_ID;
	attr->max_qp = (int)number_in(answer.root, "max_qp", 0);
	attr->max_qp_wr = (int)number_in(answer.root, "max_qp_wr", 0);
	attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				 IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN;
	attr->max_sge = attr->max_sge_rd = (int)number_in(answer.root, "max_sge", MAX_SGE);
	attr->max_cq = (int)number_in(answer.root, "max_cq", 0);
	attr->max_cqe = (int)number_in(answer.root, "max_cqe", 0);
	attr->max_mr = (int)number_in(answer.root, "max_mr", 0);
	attr->max_pd = attr->max_mr;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = (int)number_in(answer.root, "max_rd_atomic", 16);
	attr->max_res_rd_atom = attr->max_qp_rd_atom * attr->max_qp;
	/* Atomic among queue pairs of this device; programs' own instructions are not part of it. */
	attr->atomic_cap = IBV_ATOMIC_HCA;
	attr->max_srq = attr->max_qp;
	attr->max_srq_wr = attr->max_qp_wr;
	attr->max_srq_sge = attr->max_sge;
	attr->max_pkeys = 1;
	attr->phys_port_cnt = 1;
	answer_free(&answer);
	return 0;
}

int lab_query_device_ex(struct ibv_context *base, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t size)
{
	if ((input && input->comp_mask) || size < sizeof(attr->orig_attr))
		return INVALID;
	memset(attr, 0, size);
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(attr->phys_port_cnt_ex))
		attr->phys_port_cnt_ex = 1;
	return lab_query_device(base, &attr->orig_attr);
}

static int ask_port(struct lab_context *context, unsigned int port, struct answer *answer)
{
	return lab_ask(context, REQUEST("query_port", "sI", "port", INT(port)), answer);
}

static unsigned int count_ports(struct lab_context *context)
{
	struct answer answer;
	unsigned int count = 0;

	if (!lab_ask(context, REQUEST("query_device", ""), &answer)) {
		count = (unsigned int)number_in(answer.root, "phys_port_cnt", 0);
		answer_free(&answer);
	}
	return count;
}

bool lab_any_port_up(struct lab_context *context)
{
	unsigned int ports = count_ports(context);
	bool up = false;

	for (unsigned int port = 1; port <= ports && !up; port++) {
		struct answer answer;

		if (ask_port(context, port, &answer))
			break;
		up = bool_in(answer.root, "active", false);
		answer_free(&answer);
	}
	return up;
}

/* Programs see one port, which is active while a plane is up: MRC sprays over all of them, so that the loss of one is
 * none of the program's business. The planes' own states are those of ports 2 and up, and of `mrc_ctl_query_port`. */
int lab_query_port(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct lab_context *context = lab_of(base);
	struct ibv_port_attr found = {.max_mtu = IBV_MTU_4096};
	struct answer answer;
	uint64_t mtu;
	int failed = ask_port(context, port, &answer);

	if (failed)
		return failed;
	found.state = bool_in(answer.root, "active", false) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	mtu = number_in(answer.root, "active_mtu", 0);
	found.active_mtu = IBV_MTU_256;
	while (found.active_mtu < IBV_MTU_4096 && lab_mtu_bytes(found.active_mtu + 1) <= mtu)
		found.active_mtu++;
	found.max_msg_sz = (uint32_t)number_in(answer.root, "max_msg_sz", 0);
	answer_free(&answer);
	if (port == 1 && found.state != IBV_PORT_ACTIVE && lab_any_port_up(context))
		found.state = IBV_PORT_ACTIVE;
	found.gid_tbl_len = GIDS;
	found.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	found.pkey_tbl_len = 1;
	found.max_vl_num = 1;
	found.active_width = 2; /* 4X, of speed 32: EDR. Rates of the lab are in the lab file. */
	found.active_speed = 32;
	found.phys_state = found.state == IBV_PORT_ACTIVE ? 5 : 3; /* link up; disabled */
	found.link_layer = IBV_LINK_LAYER_ETHERNET;
	memset(attr, 0, size);
	memcpy(attr, &found, size < sizeof(found) ? size : sizeof(found));
	return 0;
}

/* Return the interface that has the host's address; 0 where none has it. */
static uint32_t interface_of(const struct in6_addr *address)
{
	struct ifaddrs *all;
	uint32_t index = 0;

	if (getifaddrs(&all))
		return 0;
	for (const struct ifaddrs *each = all; each && !index; each = each->ifa_next)
		if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET6 &&
		    !memcmp(&((const struct sockaddr_in6 *)(const void *)each->ifa_addr)->sin6_addr, address,
			    sizeof(*address)))
			index = if_nametoindex(each->ifa_name);
	freeifaddrs(all);
	return index;
}

/*
 * The table has four entries, and all are the host's address with RoCEv2. On a NIC of today entries 0 and 1 are
 * link-local addresses, 2 the address with RoCEv1 and 3 the address with RoCEv2, so that programs and scripts name
 * index 3 (OCP's mrc_example by default), or take 0, or search for RoCEv2. All of them find what they need.
 */
int lab_query_gid(struct ibv_context *base, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	struct lab_context *context = lab_of(base);

	if (is_forked(context))
		return ENODEV;
	if (!port || port > 255 || index >= GIDS)
		return EINVAL;
	memcpy(entry->gid.raw, &context->address, sizeof(entry->gid.raw));
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	entry->ndev_ifindex = interface_of(&context->address);
	return 0;
}

/* -- asynchronous events ------------------------------------------------------------------------------------------ */

/* Events of the layout that libibverbs has, too; of EVs `mrc_ctl_poll_ev_event` tells. */
static bool is_public(uint32_t type)
{
	return type <= IBV_EVENT_WQ_FATAL;
}

enum event_object lab_event_object(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return EVENT_OF_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return EVENT_OF_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return EVENT_OF_SRQ;
	default:
		return EVENT_OF_PORT;
	}
}

/* Fill in an event of the ring; false for one that the program is not told of. Under the lock of events. */
static bool understand(struct lab_context *context, const struct ring_event *from, struct ibv_async_event *event)
{
	struct node *node = NULL;
	enum event_object object = lab_event_object(from->type);

	event->event_type = from->type;
	pthread_mutex_lock(&context->table_lock);
	if (object == EVENT_OF_CQ && (node = table_find(&context->queues, from->element))) {
		CONTAINER(node, struct lab_cq, node)->async_taken++;
		event->element.cq = &CONTAINER(node, struct lab_cq, node)->base;
	} else if (object == EVENT_OF_QP && (node = table_find(&context->pairs, from->element))) {
		CONTAINER(node, struct lab_qp, node)->async_taken++;
		event->element.qp = &CONTAINER(node, struct lab_qp, node)->base;
	} else if (object == EVENT_OF_SRQ && (node = table_find(&context->shared, from->element))) {
		CONTAINER(node, struct lab_srq, node)->async_taken++;
		event->element.srq = &CONTAINER(node, struct lab_srq, node)->base;
	} else if (object == EVENT_OF_PORT) {
		event->element.port_num = (int)from->element;
	}
	pthread_mutex_unlock(&context->table_lock);
	return node || object == EVENT_OF_PORT;
}

/* Take the oldest event of the ring: 0, EAGAIN where there is none to tell of, EIO for a ring that is spoilt. */
static int take(struct lab_context *context, struct ibv_async_event *event)
{
	struct ring_event copy;
	uint64_t pending = ring_pending(&context->events);

	if (pending > context->events.capacity)
		return EIO;
	if (!pending)
		return EAGAIN;
	copy = *(const struct ring_event *)ring_at(&context->events, context->events.place);
	context->events.place++;
	ring_release(&context->events);
	if (!is_public(copy.type))
		return EAGAIN;
	return understand(context, &copy, event) ? 0 : EAGAIN;
}

static int tell_fatal(struct lab_context *context, struct ibv_async_event *event)
{
	int failed = ENODEV;

	pthread_mutex_lock(&context->event_lock);
	if (!context->told_fatal && !is_forked(context)) {
		context->told_fatal = true;
		/* The file descriptor is not to stay readable for ever: this was the last event. */
		epoll_ctl(context->verbs.context.async_fd, EPOLL_CTL_DEL, context->connection.fd, NULL);
		memset(event, 0, sizeof(*event));
		event->event_type = IBV_EVENT_DEVICE_FATAL;
		failed = 0;
	}
	pthread_mutex_unlock(&context->event_lock);
	return failed;
}

/* Of a plane's change, tell programs of libibverbs only what it means for the one port that they see. */
static bool concerns_port(struct lab_context *context, struct ibv_async_event *event)
{
	bool up = lab_any_port_up(context);
	bool changed = up != context->port_up;

	context->port_up = up;
	event->event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
	event->element.port_num = 1;
	return changed;
}

/* Return 0, or an errno. `planes`: ports are planes, as `mrc.h` counts them. */
int lab_get_async_event(struct lab_context *context, struct ibv_async_event *event, bool planes)
{
	for (;;) {
		int failed = lab_wait(context, context->verbs.context.async_fd, context->event_bell);

		if (failed == ENODEV)
			return tell_fatal(context, event);
		if (failed)
			return failed;
		pthread_mutex_lock(&context->event_lock);
		failed = take(context, event);
		pthread_mutex_unlock(&context->event_lock);
		if (!failed && !planes &&
		    (event->event_type == IBV_EVENT_PORT_ACTIVE || event->event_type == IBV_EVENT_PORT_ERR) &&
		    !concerns_port(context, event))
			continue;
		if (failed != EAGAIN)
			return failed;
	}
}

static void acknowledge(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *condition, uint32_t *count)
{
	if (is_forked(lab_of(context)))
		return;
	pthread_mutex_lock(mutex);
	++*count;
	pthread_cond_broadcast(condition);
	pthread_mutex_unlock(mutex);
}

void lab_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (lab_event_object(event->event_type)) {
	case EVENT_OF_CQ:
		acknowledge(cq->context, &cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case EVENT_OF_QP:
		acknowledge(qp->context, &qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case EVENT_OF_SRQ:
		acknowledge(srq->context, &srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case EVENT_OF_PORT:
		break;
	}
}
