/* Asynchronous events. */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

/* Events of the layout that libibverbs has, too; of EVs `mrc_ctl_poll_ev_event` tells. */
static bool is_public(uint32_t type)
{
	return type <= IBV_EVENT_WQ_FATAL;
}

/* Fill in an event of the ring; false for one that the program is not told of. Under the lock of events. */
static bool understand(struct lab_context *context, const struct ring_event *from, struct ibv_async_event *event)
{
	struct node *node = NULL;
	bool found = true;

	event->event_type = from->type;
	pthread_mutex_lock(&context->table_lock);
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		node = table_find(&context->queues, from->element);
		found = node != NULL;
		if (node) {
			struct lab_cq *cq = CONTAINER(node, struct lab_cq, node);

			cq->async_taken++;
			event->element.cq = &cq->base;
		}
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		node = table_find(&context->pairs, from->element);
		found = node != NULL;
		if (node) {
			struct lab_qp *qp = CONTAINER(node, struct lab_qp, node);

			qp->async_taken++;
			event->element.qp = &qp->base;
		}
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		node = table_find(&context->shared, from->element);
		found = node != NULL;
		if (node) {
			struct lab_srq *srq = CONTAINER(node, struct lab_srq, node);

			srq->async_taken++;
			event->element.srq = &srq->base;
		}
		break;
	default:
		event->element.port_num = (int)from->element;
	}
	pthread_mutex_unlock(&context->table_lock);
	return found;
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

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *condition, uint32_t *count)
{
	pthread_mutex_lock(mutex);
	++*count;
	pthread_cond_broadcast(condition);
	pthread_mutex_unlock(mutex);
}

void lab_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;

		if (!is_forked(lab_of(cq->context)))
			acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;

		if (!is_forked(lab_of(qp->context)))
			acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;

		if (!is_forked(lab_of(srq->context)))
			acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
	default:
		break;
	}
}
