/* The cases of test_programs.py: `cases NAME SOCKET SOCKET`. Each ends with 0, or says which check failed. */
#include "cases.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- data --------------------------------------------------------------------------------------------------------- */

static void writes(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct ibv_recv_wr receive = {.wr_id = 5}, *bad_receive;
	struct ibv_wc wc[2];

	join(&a, &b);
	fill(a.memory, SIZE, 1);
	CHECK(!post_write(&a, &b, a.qp, 9, 0, SIZE, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, wc);
	CHECK(wc[0].wr_id == 9 && wc[0].status == IBV_WC_SUCCESS && wc[0].opcode == IBV_WC_RDMA_WRITE);
	CHECK(wc[0].qp_num == a.number && !memcmp(a.memory, b.memory, SIZE));
	/* An immediate crosses in network order, and takes a receive. */
	CHECK(!mrc_post_recv(b.qp, &receive, &bad_receive));
	CHECK(!post_write(&a, &b, a.qp, 10, 100, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, htonl(0x01020304)));
	poll_for(b.cq, 1, wc);
	CHECK(wc[0].wr_id == 5 && wc[0].opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc[0].byte_len == 8);
	CHECK(wc[0].wc_flags == IBV_WC_WITH_IMM && ntohl(wc[0].imm_data) == 0x01020304 && wc[0].src_qp == a.number);
	poll_for(a.cq, 1, wc);
	CHECK(wc[0].wr_id == 10);
	close_end(&a);
	close_end(&b);
}

/* Several elements, inline bytes from memory that is not registered, chains, and unsignaled requests. */
static void requests(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char local[200];
	struct ibv_sge elements[3], whole = {(uintptr_t)local, sizeof(local), 0};
	struct ibv_send_wr second = {.wr_id = 2, .sg_list = &whole, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
	struct ibv_send_wr first = {.wr_id = 1, .next = &second, .sg_list = elements, .num_sge = 3,
				    .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	join(&a, &b);
	fill(a.memory, SIZE, 2);
	fill(local, sizeof(local), 3);
	for (int i = 0; i < 3; i++)
		elements[i] = (struct ibv_sge){(uintptr_t)a.memory + 1000 * (uintptr_t)i, 10, a.mr->lkey};
	first.wr.rdma.remote_addr = (uintptr_t)b.memory;
	second.wr.rdma.remote_addr = (uintptr_t)b.memory + 4096;
	first.wr.rdma.rkey = second.wr.rdma.rkey = b.mr->rkey;
	CHECK(!mrc_post_send(a.qp, &first, &bad));
	memset(local, 0, sizeof(local)); /* inline bytes were taken when they were posted */
	poll_for(a.cq, 1, &wc);
	CHECK(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK(!memcmp(b.memory + 10 * i, a.memory + 1000 * i, 10));
	fill(local, sizeof(local), 3);
	CHECK(!memcmp(b.memory + 4096, local, sizeof(local)));
	close_end(&a);
	close_end(&b);
}

static void refusals(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct mrc_qp *small = create_pair(&a, 4, 2, 0);
	struct mrc_qp *peer = create_pair(&b, 4, 2, 0);
	struct ibv_recv_wr receives[3] = {{.wr_id = 1, .next = &receives[1]}, {.wr_id = 2, .next = &receives[2]},
					  {.wr_id = 3}};
	struct ibv_recv_wr *bad_receive = NULL;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad = NULL;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct mrc_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .pd = a.pd};
	uint32_t number, peer_number;
	struct ibv_wc wc;

	CHECK(small && peer && !mrc_get_qpn(small, &number) && !mrc_get_qpn(peer, &peer_number));
	/* Nothing can be posted in RESET, and RTR needs the peer. */
	CHECK(post_write(&a, &b, small, 1, 0, 8, 0, -1) == EINVAL);
	CHECK(mrc_post_recv(small, receives, &bad_receive) == -1 && errno == EINVAL && bad_receive == receives);
	CHECK(mrc_modify_qp(small, &attr, IBV_QP_STATE, NULL, 0) == EINVAL);
	move(small, peer_number, &b.gid);
	move(peer, number, &a.gid);
	CHECK(mrc_post_send(small, &send, &bad) == EOPNOTSUPP && bad == &send);
	CHECK(mrc_post_recv(small, receives, &bad_receive) == -1 && errno == ENOMEM && bad_receive == &receives[2]);
	/* Unsignaled requests fill the queue until a completion says how many have ended. */
	for (uint64_t i = 0; i < 3; i++)
		CHECK(!post_write(&a, &b, small, i, 0, 8, 0, -1));
	CHECK(!post_write(&a, &b, small, 3, 0, 8, IBV_SEND_SIGNALED, -1));
	CHECK(post_write(&a, &b, small, 4, 0, 8, 0, -1) == ENOMEM);
	poll_for(a.cq, 1, &wc);
	CHECK(wc.wr_id == 3 && !post_write(&a, &b, small, 4, 0, 8, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, &wc);
	init.cap.max_inline_data = 257;
	CHECK(!mrc_create_qp(a.mrc, &init) && errno == EINVAL);
	CHECK(!mrc_destroy_qp(small) && !mrc_destroy_qp(peer));
	/* What objects depend on stays. */
	CHECK(mrc_destroy_cq(a.cq) == EBUSY && ibv_dealloc_pd(a.pd) == EBUSY);
	CHECK(mrc_destroy_comp_channel(a.channel) == EBUSY);
	close_end(&a);
	close_end(&b);
}

/* -- notifications and events ------------------------------------------------------------------------------------- */

static void notifications(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct epoll_event ready;
	struct ibv_port_attr port;
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *user;
	int fd, epoll = epoll_create1(0);

	join(&a, &b);
	CHECK(!mrc_get_comp_channel_fd(a.channel, &fd));
	CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == EAGAIN);
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN}));
	CHECK(!mrc_req_notify_cq(a.cq, 0));
	CHECK(!post_write(&a, &b, a.qp, 1, 0, 64, IBV_SEND_SIGNALED, -1));
	CHECK(epoll_wait(epoll, &ready, 1, 30000) == 1);
	CHECK(!mrc_get_cq_event(a.channel, &cq, &user) && cq == a.cq && user);
	poll_for(a.cq, 1, &wc);
	/* One notification for one request, and none without. */
	CHECK(epoll_wait(epoll, &ready, 1, 0) == 0);
	CHECK(!post_write(&a, &b, a.qp, 2, 0, 64, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, &wc);
	CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == EAGAIN);
	/* What came before the request does not count; the agent takes the request before it answers another one. */
	CHECK(!mrc_req_notify_cq(a.cq, 0));
	CHECK(ibv_query_port(a.context, 1, &port) == 0);
	CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == EAGAIN);
	/* A blocking call waits for the next. */
	CHECK(!fcntl(fd, F_SETFL, 0));
	CHECK(!post_write(&a, &b, a.qp, 3, 0, 64, IBV_SEND_SIGNALED, -1));
	CHECK(!mrc_get_cq_event(a.channel, &cq, &user));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.wr_id == 3);
	mrc_ack_cq_events(a.cq, 2);
	close(epoll);
	close_end(&a);
	close_end(&b);
}

static void *acknowledge_late(void *cq)
{
	usleep(100000);
	*(volatile int *)((void **)cq)[1] = 1;
	mrc_ack_cq_events(((void **)cq)[0], 1);
	return NULL;
}

/* A queue is destroyed once its events are acknowledged, and not before. */
static void acknowledgements(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	volatile int acknowledged = 0;
	void *arguments[2] = {a.cq, (void *)&acknowledged};
	struct mrc_cq *cq;
	pthread_t thread;
	struct ibv_wc wc;
	void *user;

	join(&a, &b);
	CHECK(!mrc_req_notify_cq(a.cq, 0));
	CHECK(!post_write(&a, &b, a.qp, 1, 0, 64, IBV_SEND_SIGNALED, -1));
	CHECK(!mrc_get_cq_event(a.channel, &cq, &user));
	poll_for(a.cq, 1, &wc);
	CHECK(!mrc_destroy_qp(a.qp));
	CHECK(!pthread_create(&thread, NULL, acknowledge_late, arguments));
	CHECK(!mrc_destroy_cq(a.cq) && acknowledged);
	pthread_join(thread, NULL);
	a.cq = mrc_create_cq(a.mrc, 16, NULL, a.channel, 0);
	a.qp = create_pair(&a, 4, 4, 0);
	CHECK(a.cq && a.qp);
	close_end(&a);
	close_end(&b);
}

/* A wrong key ends both queue pairs; the error comes as a completion and as an event of each. */
static void failures(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct end wrong = b;
	struct ibv_mr key = *b.mr;
	struct mrc_async_event event;
	struct ibv_async_event plain;
	struct ibv_qp_attr attr;
	struct ibv_wc wc[2];

	join(&a, &b);
	key.rkey ^= 0x5a5a;
	wrong.mr = &key;
	CHECK(!post_write(&a, &wrong, a.qp, 1, 0, 64, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_REM_ACCESS_ERR && wc[0].wr_id == 1);
	CHECK(!mrc_get_async_event(a.mrc, &event) && event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == a.qp);
	CHECK(!mrc_query_qp(a.qp, &attr, IBV_QP_STATE, NULL, 0, NULL) && attr.qp_state == IBV_QPS_ERR);
	/* What is posted in ERR is flushed. */
	CHECK(!post_write(&a, &b, a.qp, 2, 0, 64, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].wr_id == 2);
	mrc_ack_async_event(&event);
	CHECK(!ibv_get_async_event(b.context, &plain) && plain.event_type == IBV_EVENT_QP_FATAL);
	ibv_ack_async_event(&plain);
	close_end(&a);
	close_end(&b);
}

static struct mrc_qp *failed_pair(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct mrc_qp *made = create_pair(end, 8, 8, 0);

	CHECK(made);
	move(made, 5, &end->gid);
	CHECK(!mrc_modify_qp(made, &attr, IBV_QP_STATE, NULL, 0));
	return made;
}

/* On the way to RESET a queue pair loses the completions that were not polled, and the others keep theirs. */
static void resets(void)
{
	struct end a = open_end(paths[0]), other = a;
	struct mrc_qp *one = failed_pair(&a), *two = failed_pair(&a), *last;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc[8];

	other.cq = mrc_create_cq(a.mrc, 16, NULL, NULL, 0);
	CHECK(other.cq);
	last = failed_pair(&other);
	for (int round = 0; round < 180; round++) { /* more than a queue of completions holds */
		for (int i = 0; i < 3; i++) {
			CHECK(!post_write(&a, &a, one, 1, 0, 8, IBV_SEND_SIGNALED, -1));
			CHECK(!post_write(&a, &a, two, 2 + (uint64_t)i, 0, 8, IBV_SEND_SIGNALED, -1));
		}
		CHECK(!post_write(&a, &a, last, 9, 0, 8, IBV_SEND_SIGNALED, -1));
		poll_for(other.cq, 1, wc); /* the agent takes requests in their order */
		CHECK(!mrc_modify_qp(one, &attr, IBV_QP_STATE, NULL, 0));
		CHECK(mrc_poll_cq(a.cq, 8, wc) == 3 && wc[0].wr_id == 2 && wc[1].wr_id == 3 && wc[2].wr_id == 4);
		move(one, 5, &a.gid);
		CHECK(!mrc_modify_qp(one, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE, NULL, 0));
	}
	CHECK(!mrc_destroy_qp(one) && !mrc_destroy_qp(two) && !mrc_destroy_qp(last) && !mrc_destroy_cq(other.cq));
	close_end(&a);
}

/* -- attributes --------------------------------------------------------------------------------------------------- */

static void attributes(void)
{
	struct end a = open_end(paths[0]);
	struct mrc_device_attr device;
	struct mrc_qp_hint_init_attr hint_init = {.attr = {.num_qps_per_peer = 2, .num_send_peers = 3}};
	struct mrc_qp_hint_attr hint_attr = {.num_send_peers = 9};
	struct mrc_qp_hint *hint = mrc_create_qp_hint(a.mrc, &hint_init);
	struct mrc_qp_attr more = {.mpr = {.mpr_dest = 4}, .wimm = {.max_wimm_dest = 12}, .qp_hint = hint,
				   .cap = MRC_QP_CAP_DYNAMIC_MPR};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct mrc_qp_init_attr init;
	struct ibv_device_attr plain;
	struct ibv_device_attr_ex extended;
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[8];
	uint32_t versions[4];
	int supported;

	CHECK(hint);
	mrc_query_version(&versions[0], &versions[1], &versions[2], &versions[3]);
	CHECK(versions[0] == MRC_API_VER(1, 0, 1) && versions[1] <= versions[0] && versions[3] <= versions[2]);
	CHECK(!mrc_query_device_ex(a.context, a.mrc, &device, &supported) && supported);
	CHECK(device.mrc_protocol_version == MRC_PROTOCOL_VERSION_1 && device.mpr_attr.max_mpr == 255);
	CHECK(device.wimm_attr.max_wimm == 32767 && device.mpr_attr.mpr_resolution == 1);
	CHECK(device.cap == (MRC_DEVICE_CAP_TRIM_NACK | MRC_DEVICE_CAP_DYNAMIC_MPR | MRC_DEVICE_CAP_SVC_TIME));
	CHECK(!ibv_query_device(a.context, &plain) && plain.max_sge == 16 && plain.phys_port_cnt == 1);
	CHECK(plain.node_guid == ibv_get_device_guid(a.context->device));
	CHECK(!ibv_query_device_ex(a.context, NULL, &extended) && extended.phys_port_cnt_ex == 1);
	CHECK(!memcmp(&plain, &extended.orig_attr, sizeof(plain)));
	CHECK(!ibv_query_port(a.context, 1, &port) && port.state == IBV_PORT_ACTIVE && port.gid_tbl_len == 4);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && ibv_query_port(a.context, 9, &port) == EINVAL);
	CHECK(ibv_query_gid_table(a.context, entries, 8, 0) == 4);
	for (uint32_t i = 0; i < 4; i++)
		CHECK(entries[i].gid_index == i && entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		      !memcmp(&entries[i].gid, &a.gid, sizeof(a.gid)));
	CHECK(ibv_query_gid_ex(a.context, 1, 4, entries, 0) == EINVAL);
	/* Attributes of the queue pair and of its hint come back. */
	CHECK(!mrc_modify_qp_hint(hint, &hint_attr, MRC_QP_HINT_NUM_SEND_PEERS));
	CHECK(!mrc_query_qp_hint(hint, &hint_attr, MRC_QP_HINT_NUM_SEND_PEERS));
	CHECK(hint_attr.num_send_peers == 9 && hint_attr.num_qps_per_peer == 2);
	CHECK(!mrc_modify_qp(a.qp, &attr, IBV_QP_STATE, &more,
			     MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST | MRC_QP_HINT | MRC_QP_CAP));
	memset(&more, 0, sizeof(more));
	CHECK(!mrc_query_qp(a.qp, &attr, IBV_QP_STATE, &more, MRC_QP_MPR_DEST, &init));
	CHECK(attr.qp_state == IBV_QPS_INIT && more.mpr.mpr_dest == 4 && more.wimm.max_wimm_dest == 12);
	CHECK(more.qp_hint == hint && more.cap == MRC_QP_CAP_DYNAMIC_MPR && init.pd == a.pd && init.send_cq == a.cq);
	CHECK(mrc_destroy_qp_hint(hint) == -1 && errno == EBUSY);
	CHECK(mrc_modify_qp(a.qp, &attr, 0, &more, 1 << 20) == EINVAL);
	CHECK(!mrc_destroy_qp(a.qp) && !mrc_destroy_qp_hint(hint));
	a.qp = create_pair(&a, 4, 4, 0);
	close_end(&a);
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

#define THREADS 4
#define EACH 300

struct worker {
	struct end *a, *b;
	pthread_mutex_t *lock;
	int *under_way, *done;
	uint64_t first;
};

static void *post_some(void *argument)
{
	struct worker *worker = argument;

	for (uint64_t i = 0; i < EACH; i++) {
		/* As many as fit; the queue pair is the other threads', too. */
		while (post_write(worker->a, worker->b, worker->a->qp, worker->first + i, 0, 32, IBV_SEND_SIGNALED, -1)) {
			CHECK(errno != EIO);
			sched_yield();
		}
	}
	return NULL;
}

static unsigned char seen[THREADS * EACH];
static _Atomic int total;

static void *poll_some(void *argument)
{
	struct worker *worker = argument;
	struct ibv_wc wc[7];

	while (total < THREADS * EACH) {
		int found = mrc_poll_cq(worker->a->cq, 7, wc);

		CHECK(found >= 0);
		for (int i = 0; i < found; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < sizeof(seen));
			__atomic_fetch_add(&seen[wc[i].wr_id], 1, __ATOMIC_RELAXED);
			total++;
		}
		if (!found)
			sched_yield();
	}
	return NULL;
}

/* Threads post to one queue pair and poll one queue: each request completes once. */
static void threads(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct worker workers[THREADS];
	pthread_t posting[THREADS], polling[2];

	join(&a, &b);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.a = &a, .b = &b, .first = (uint64_t)i * EACH};
		CHECK(!pthread_create(&posting[i], NULL, post_some, &workers[i]));
	}
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&polling[i], NULL, poll_some, &workers[0]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(posting[i], NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(polling[i], NULL);
	for (size_t i = 0; i < sizeof(seen); i++)
		CHECK(seen[i] == 1);
	close_end(&a);
	close_end(&b);
}

/* -- looking functions up ----------------------------------------------------------------------------------------- */

static void lookups(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_device **(*list)(int *), **found;
	void *(*again)(void *, const char *, const char *) = dlvsym;
	int count = 0;

	setenv("MRC_DEVICE", paths[0], 1);
	if (!handle) {
		puts("no libibverbs");
		return;
	}
	*(void **)&list = again(handle, "ibv_get_device_list", "IBVERBS_1.1");
	found = list == ibv_get_device_list ? list(&count) : NULL;
	CHECK(found && count == 1);
	ibv_free_device_list(found);
	CHECK(!dlvsym(handle, "ibv_get_device_list", "IBVERBS_9.9") && !dlvsym(handle, "ibv_no_such", "IBVERBS_1.1"));
	CHECK(dlvsym(RTLD_DEFAULT, "dlvsym", "GLIBC_0.0") == NULL);
	unsetenv("MRC_DEVICE");
	CHECK(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1") != (void *)(uintptr_t)ibv_get_device_list);
}

/* Print the events of ports, as one context hears them by `mrc.h` and another by libibverbs. */
static void ports(void)
{
	struct end a = open_end(paths[0]);
	struct ibv_context *other = open_context(paths[0]);
	struct mrc_async_event event;
	struct ibv_async_event plain;

	CHECK(!fcntl(other->async_fd, F_SETFL, O_NONBLOCK));
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < 3; i++) {
		struct ibv_port_attr port;

		CHECK(!mrc_get_async_event(a.mrc, &event));
		printf("mrc %d %d", event.event_type, event.element.port_num);
		mrc_ack_async_event(&event);
		CHECK(!ibv_query_port(other, 1, &port));
		if (!ibv_get_async_event(other, &plain))
			printf(", verbs %d %d", plain.event_type, plain.element.port_num);
		else
			CHECK(errno == EAGAIN);
		puts("");
		fflush(stdout);
	}
	CHECK(!ibv_close_device(other));
	close_end(&a);
}

static const struct test_case cases[] = {
	{"writes", writes},
	{"requests", requests},
	{"refusals", refusals},
	{"notifications", notifications},
	{"acknowledgements", acknowledgements},
	{"failures", failures},
	{"attributes", attributes},
	{"resets", resets},
	{"threads", threads},
	{"lookups", lookups},
	{"ports", ports},
};

int main(int count, char **arguments)
{
	return run_case(cases, sizeof(cases) / sizeof(*cases), count, arguments);
}
