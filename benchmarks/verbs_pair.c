/*
 * Latency and bandwidth between two C programs over libmrc; `bench_verbs.py` runs one on each host.
 *
 *     verbs_pair latency|polling|bandwidth BYTES COUNT FIRST SOCKET
 *
 * Both exchange addresses over the file descriptor SOCKET. With FIRST 1 a program measures and prints: half round trips in
 * microseconds (least, median, 99 %) of writes with immediate, or megabytes per second of writes.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <mrc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 128
#define REPORT_EVERY 16

struct address {
	union ibv_gid gid;
	uint64_t memory;
	uint32_t number;
	uint32_t key;
};

static struct ibv_mr *region;
static struct mrc_comp_channel *channel;
static struct mrc_cq *queue;
static struct mrc_qp *pair;
static unsigned char *memory;
static struct address peer;

static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "verbs_pair: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void meet(int other, void *own, void *theirs, size_t length)
{
	need(write(other, own, length) == (ssize_t)length && read(other, theirs, length) == (ssize_t)length, "the peer");
}

static void receive(int count)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

	while (count--)
		need(!mrc_post_recv(pair, &wr, &bad), "a receive");
}

/* Post up to REPORT_EVERY writes at once; the last one reports if it is `signaled`. */
static void post(uint32_t bytes, bool immediate, bool signaled, int count)
{
	struct ibv_sge element = {(uintptr_t)memory, bytes, region->lkey};
	struct ibv_send_wr list[REPORT_EVERY] = {0}, *bad;

	for (int i = 0; i < count; i++) {
		list[i].sg_list = &element;
		list[i].num_sge = 1;
		list[i].opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
		list[i].wr.rdma.remote_addr = peer.memory;
		list[i].wr.rdma.rkey = peer.key;
		list[i].next = &list[i + 1];
	}
	list[count - 1].next = NULL;
	list[count - 1].send_flags = signaled ? IBV_SEND_SIGNALED : 0;
	need(!mrc_post_send(pair, list, &bad), "writes");
}

/* Take completions until one of this kind comes, by waiting for a notification or by polling without end. */
static void await(bool receives, bool polling)
{
	struct ibv_wc done;

	for (;;) {
		int count = mrc_poll_cq(queue, 1, &done);

		if (!count && !polling) {
			struct mrc_cq *of;
			void *user;

			need(!mrc_req_notify_cq(queue, 0), "a notification");
			count = mrc_poll_cq(queue, 1, &done);
			if (!count) {
				need(!mrc_get_cq_event(channel, &of, &user), "a notification");
				mrc_ack_cq_events(of, 1);
				continue;
			}
		}
		need(count >= 0 && (!count || done.status == IBV_WC_SUCCESS), "a completion");
		if (count && !(done.opcode & IBV_WC_RECV) == !receives)
			return;
	}
}

static void open_end(uint32_t bytes, int other)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *device;
	struct mrc_context *context;
	struct mrc_qp_init_attr init = {.cap = {.max_send_wr = DEPTH + REPORT_EVERY, .max_recv_wr = DEPTH, .max_send_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct address own = {.key = 0};

	need(devices && devices[0], "a device; is MRC_DEVICE set?");
	device = ibv_open_device(devices[0]);
	need(device, "opening the device");
	context = mrc_create_context(device, NULL);
	init.pd = ibv_alloc_pd(device);
	need(context && init.pd && !mrc_create_comp_channel(context, &channel), "a context");
	memory = aligned_alloc(4096, (bytes + 4095u) & ~4095u);
	memset(memory, 1, bytes);
	region = ibv_reg_mr(init.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = init.recv_cq = queue = mrc_create_cq(context, 4 * DEPTH, NULL, channel, 0);
	need(region && queue, "memory and a queue");
	pair = mrc_create_qp(context, &init);
	need(pair && !mrc_get_qpn(pair, &own.number) && !ibv_query_gid(device, 1, 0, &own.gid), "a queue pair");
	own.memory = (uintptr_t)memory;
	own.key = region->rkey;
	need(!mrc_modify_qp(pair, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL, 0), "INIT");
	receive(DEPTH);
	meet(other, &own, &peer, sizeof(own));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_4096;
	attr.dest_qp_num = peer.number;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer.gid;
	need(!mrc_modify_qp(pair, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, NULL, 0),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	need(!mrc_modify_qp(pair, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, NULL, 0), "RTS");
	meet(other, &own, &own, 1);
}

static int compare(const void *one, const void *two)
{
	double difference = *(const double *)one - *(const double *)two;

	return (difference > 0) - (difference < 0);
}

static void latency(uint32_t bytes, long count, bool first, bool polling)
{
	double *times = calloc((size_t)count, sizeof(*times));

	need(times, "memory");
	for (long number = 0; number < count; number++) {
		double began = now_us();

		/* Every eighth reports, so that places in the send queue become free. */
		if (first)
			post(bytes, true, number % 8 == 0, 1);
		await(true, polling);
		receive(1);
		if (!first)
			post(bytes, true, number % 8 == 0, 1);
		times[number] = (now_us() - began) / 2;
	}
	qsort(times, (size_t)count, sizeof(*times), compare);
	if (first)
		printf("%.1f %.1f %.1f\n", times[0], times[count / 2], times[count * 99 / 100]);
	free(times);
}

static void bandwidth(uint32_t bytes, long count)
{
	double began = now_us();
	long posted = 0, ended = 0;

	while (ended < count) {
		while (posted < count && posted - ended + REPORT_EVERY <= DEPTH) {
			int some = count - posted < REPORT_EVERY ? (int)(count - posted) : REPORT_EVERY;

			post(bytes, false, true, some);
			posted += some;
		}
		await(false, false);
		ended += count - ended < REPORT_EVERY ? count - ended : REPORT_EVERY;
	}
	printf("%.1f\n", (double)bytes * (double)count / (now_us() - began));
}

int main(int words, char **word)
{
	bool first;
	int other;
	char byte = 0;

	if (words != 6) {
		fprintf(stderr, "usage: verbs_pair latency|polling|bandwidth BYTES COUNT FIRST SOCKET\n");
		return 2;
	}
	first = atoi(word[4]);
	other = atoi(word[5]);
	open_end((uint32_t)atoi(word[2]), other);
	if (!strcmp(word[1], "bandwidth")) {
		if (first)
			bandwidth((uint32_t)atoi(word[2]), atol(word[3]));
	} else {
		latency((uint32_t)atoi(word[2]), atol(word[3]), first, !strcmp(word[1], "polling"));
	}
	meet(other, &byte, &byte, 1);
	return 0;
}
