/*
 * The verbs calls of NCCL's transport over InfiniBand and RoCE (net_ib), in their order and with their sizes: one process
 * sends and one receives, as two ranks do. Nothing of libmrc is linked: functions are looked up by their versions.
 *
 *     net_ib send|receive PAIRS INLINE SOCKET
 *
 * The two exchange what they know over the file descriptor SOCKET. PAIRS queue pairs share each message. The receiver
 * says into which memory a message goes (a slot of a FIFO in the sender's memory, inline if INLINE is 1). The sender
 * writes the parts, each as a write with immediate. Several messages may share a slot; then their sizes are written,
 * too. After each slot the receiver flushes its memory by a READ from its own host, where that is possible. Exit
 * status 0: all bytes were right.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 256
#define MOST_MESSAGES 8
#define MOST_PAIRS 8
#define ALIGNED 128
#define ROUNDS 300 /* more than there are slots */
#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "net_ib %s:%d: %s (errno %d: %s)\n", role, __LINE__, #condition, errno,        \
				strerror(errno));                                                                     \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

/* What the receiver writes into the sender's memory. */
struct clearance {
	uint64_t address;
	uint64_t size;
	uint32_t keys[4];
	uint32_t messages;
	uint32_t tag;
	uint64_t number;
};

struct record {
	int sizes[MOST_MESSAGES];
	bool completions[128];
};

/* Out of band. */
struct greeting {
	uint32_t numbers[MOST_PAIRS];
	enum ibv_mtu mtu;
	union ibv_gid gid;
	uint64_t fifo;
	uint32_t key;
};

static const char *role;

static struct {
	int (*fork_init)(void);
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	const char *(*event_type_str)(enum ibv_event_type);
	int (*query_ece)(struct ibv_qp *, struct ibv_ece *);
	int (*set_ece)(struct ibv_qp *, struct ibv_ece *);
} verbs;

static const struct {
	const char *name;
	const char *version;
	void *place;
} wanted[] = {
	{"ibv_fork_init", "IBVERBS_1.1", &verbs.fork_init},
	{"ibv_get_device_list", "IBVERBS_1.1", &verbs.get_device_list},
	{"ibv_free_device_list", "IBVERBS_1.1", &verbs.free_device_list},
	{"ibv_get_device_name", "IBVERBS_1.1", &verbs.get_device_name},
	{"ibv_open_device", "IBVERBS_1.1", &verbs.open_device},
	{"ibv_close_device", "IBVERBS_1.1", &verbs.close_device},
	{"ibv_get_async_event", "IBVERBS_1.1", &verbs.get_async_event},
	{"ibv_ack_async_event", "IBVERBS_1.1", &verbs.ack_async_event},
	{"ibv_query_device", "IBVERBS_1.1", &verbs.query_device},
	{"ibv_query_port", "IBVERBS_1.1", &verbs.query_port},
	{"ibv_query_gid", "IBVERBS_1.1", &verbs.query_gid},
	{"ibv_alloc_pd", "IBVERBS_1.1", &verbs.alloc_pd},
	{"ibv_dealloc_pd", "IBVERBS_1.1", &verbs.dealloc_pd},
	{"ibv_reg_mr", "IBVERBS_1.1", &verbs.reg_mr},
	{"ibv_reg_mr_iova2", "IBVERBS_1.8", &verbs.reg_mr_iova2},
	{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", &verbs.reg_dmabuf_mr},
	{"ibv_dereg_mr", "IBVERBS_1.1", &verbs.dereg_mr},
	{"ibv_create_cq", "IBVERBS_1.1", &verbs.create_cq},
	{"ibv_destroy_cq", "IBVERBS_1.1", &verbs.destroy_cq},
	{"ibv_create_qp", "IBVERBS_1.1", &verbs.create_qp},
	{"ibv_modify_qp", "IBVERBS_1.1", &verbs.modify_qp},
	{"ibv_destroy_qp", "IBVERBS_1.1", &verbs.destroy_qp},
	{"ibv_event_type_str", "IBVERBS_1.1", &verbs.event_type_str},
	{"ibv_query_ece", "IBVERBS_1.10", &verbs.query_ece},
	{"ibv_set_ece", "IBVERBS_1.10", &verbs.set_ece},
};

static struct ibv_context *device;
static struct ibv_port_attr port;
static union ibv_gid gid;
static struct ibv_pd *domain;
static struct ibv_cq *queue;
static struct ibv_qp *pairs[MOST_PAIRS];
static int count, in_line, other;

static void look_up(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	CHECK(library);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		void *found = dlvsym(library, wanted[i].name, wanted[i].version);

		if (!found)
			fprintf(stderr, "%s@%s\n", wanted[i].name, wanted[i].version);
		CHECK(found);
		memcpy(wanted[i].place, &found, sizeof(found));
	}
}

/* NCCL has a thread for each device that waits for its events. */
static void *watch(void *unused)
{
	struct ibv_async_event event;

	(void)unused;
	while (!verbs.get_async_event(device, &event)) {
		if (event.event_type != IBV_EVENT_COMM_EST)
			fprintf(stderr, "net_ib %s: %s\n", role, verbs.event_type_str(event.event_type));
		verbs.ack_async_event(&event);
	}
	return NULL;
}

static void find_device(void)
{
	struct ibv_device_attr attr;
	struct ibv_device **list;
	struct ibv_pd *probe;
	pthread_t watcher;
	int devices;

	verbs.fork_init();
	list = verbs.get_device_list(&devices);
	CHECK(list && devices == 1);
	device = verbs.open_device(list[0]);
	CHECK(device && !strcmp(verbs.get_device_name(list[0]), "mrc0"));
	CHECK(!verbs.query_device(device, &attr) && attr.phys_port_cnt == 1 && attr.max_qp >= count + 1);
	CHECK(!verbs.query_port(device, 1, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.active_speed && port.active_width && port.gid_tbl_len > 3);
	CHECK(!pthread_create(&watcher, NULL, watch, NULL) && !pthread_detach(watcher));
	verbs.free_device_list(list);
	/* Memory of GPUs is asked for with a file descriptor that is none: other errors would mean that it works. */
	probe = verbs.alloc_pd(device);
	CHECK(probe && !verbs.reg_dmabuf_mr(probe, 0, 0, 0, -1, 0));
	CHECK(errno == EOPNOTSUPP || errno == EPROTONOSUPPORT);
	CHECK(!verbs.dealloc_pd(probe));
}

static struct ibv_qp *make_pair(uint32_t sends, uint32_t receives, int access)
{
	struct ibv_qp_init_attr init = {.qp_context = &count, .send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned int)access};
	struct ibv_qp *made;
	struct ibv_ece options = {0};

	init.cap.max_send_wr = sends;
	init.cap.max_recv_wr = receives;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.cap.max_inline_data = in_line ? sizeof(struct clearance) : 0;
	made = verbs.create_qp(domain, &init);
	CHECK(made);
	CHECK(!verbs.modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	/* Options of vendors, without which NCCL goes on if they are refused like this. */
	CHECK(verbs.query_ece(made, &options) == EOPNOTSUPP && verbs.set_ece(made, &options) == EOPNOTSUPP);
	return made;
}

static void connect_pair(struct ibv_qp *pair, uint32_t number, const union ibv_gid *peer, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = number,
				   .max_dest_rd_atomic = 1, .min_rnr_timer = 12};

	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = *peer;
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.hop_limit = 255;
	attr.ah_attr.port_num = 1;
	CHECK(!verbs.modify_qp(pair, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 20;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	CHECK(!verbs.modify_qp(pair, &attr,
			       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_mr *registered(void *memory, size_t length, int access)
{
	struct ibv_mr *made = verbs.reg_mr(domain, memory, length, access);

	CHECK(made);
	return made;
}

/* Whole pages, with all rights, and in any order: as the buffers of a user. */
static struct ibv_mr *registered_buffer(void *memory, size_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory & -page;
	size_t bytes = ((uintptr_t)memory + length - first + page - 1) & -page;
	struct ibv_mr *made = verbs.reg_mr_iova2(domain, (void *)first, bytes, first,
						 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
							 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
							 IBV_ACCESS_RELAXED_ORDERING);

	CHECK(made);
	return made;
}

static void say(const void *bytes, size_t length)
{
	CHECK(write(other, bytes, length) == (ssize_t)length);
}

static void hear(void *bytes, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t more = read(other, (char *)bytes + got, length - got);

		CHECK(more > 0);
		got += (size_t)more;
	}
}

static void join(struct greeting *own, struct greeting *peer)
{
	for (int i = 0; i < count; i++)
		own->numbers[i] = pairs[i]->qp_num;
	own->mtu = port.active_mtu;
	own->gid = gid;
	say(own, sizeof(*own));
	hear(peer, sizeof(*peer));
	for (int i = 0; i < count; i++)
		connect_pair(pairs[i], peer->numbers[i], &peer->gid, peer->mtu < port.active_mtu ? peer->mtu : port.active_mtu);
}

/* Poll four at a time until `expected` completions of an operation have come; others are counted in `more`. */
static void await(int expected, enum ibv_wc_opcode opcode, int *more)
{
	struct ibv_wc wc[4];

	while (expected) {
		int found = ibv_poll_cq(queue, 4, wc);

		CHECK(found >= 0);
		for (int i = 0; i < found; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				fprintf(stderr, "net_ib %s: status %d of operation %d\n", role, wc[i].status, wc[i].opcode);
			CHECK(wc[i].status == IBV_WC_SUCCESS);
			if (wc[i].opcode == opcode)
				expected--;
			else
				(*more)++;
		}
		if (!found)
			poll(NULL, 0, 1); /* NCCL goes on to other work */
	}
}

/* Messages of a round, both ends alike: how many, and how long. */
static uint32_t messages_of(int round)
{
	return round % 16 == 15 ? 3 : 1;
}

static uint32_t size_of(int round, uint32_t message)
{
	static const uint32_t sizes[] = {8, 1024, 100, 65536, 4096, 0, 20001, 1};

	return sizes[((uint32_t)round + message) % (sizeof(sizes) / sizeof(*sizes))];
}

static unsigned char byte_of(int round, uint32_t message, uint32_t at)
{
	return (unsigned char)((uint32_t)round * 31 + message * 7 + at * 13);
}

#define MESSAGE_BYTES 65536

static void post_messages(int round, const volatile struct clearance *slots, const unsigned char *data, uint32_t key,
			  int (*sizes)[MOST_MESSAGES], struct ibv_mr *sizes_region, const struct greeting *peer)
{
	uint32_t messages = slots[0].messages, offsets[MOST_MESSAGES] = {0};
	struct ibv_send_wr wr[MOST_MESSAGES + 1] = {0}, *last, *bad;
	struct ibv_sge parts[MOST_MESSAGES + 1];
	uint64_t wr_id = 0;

	for (uint32_t i = 0; i < messages; i++) {
		uint32_t size = size_of(round, i), share = (size + (uint32_t)count - 1) / (uint32_t)count;

		CHECK(slots[i].tag == 7 + i && slots[i].size >= size);
		parts[i].addr = (uintptr_t)data + i * MESSAGE_BYTES;
		parts[i].length = (share + ALIGNED - 1) / ALIGNED * ALIGNED;
		parts[i].lkey = key;
		wr_id += (uint64_t)((uint32_t)round % SLOTS & 0xff) << (i * 8);
		wr[i].wr_id = wr_id;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].sg_list = &parts[i];
		wr[i].wr.rdma.remote_addr = slots[i].address;
		wr[i].wr.rdma.rkey = slots[i].keys[0];
		wr[i].next = &wr[i + 1];
		sizes[round % SLOTS][i] = (int)size;
	}
	last = &wr[messages - 1];
	if (messages > 1) {
		last = &wr[messages];
		parts[messages] = (struct ibv_sge){(uintptr_t)sizes[round % SLOTS], messages * sizeof(int), sizes_region->lkey};
		last->sg_list = &parts[messages];
		last->num_sge = 1;
		last->wr.rdma.remote_addr = peer->fifo + (uint64_t)(round % SLOTS) * sizeof(struct record);
		last->wr.rdma.rkey = peer->key;
	}
	last->wr_id = wr_id;
	last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	last->imm_data = htobe32(size_of(round, 0));
	last->next = NULL;
	last->send_flags = IBV_SEND_SIGNALED;
	for (int pair = 0; pair < count; pair++) {
		for (uint32_t i = 0; i < messages; i++) {
			uint32_t left = size_of(round, i) - offsets[i];

			if (parts[i].length > left)
				parts[i].length = left;
			wr[i].num_sge = parts[i].length > 0;
		}
		CHECK(!ibv_post_send(pairs[pair], wr, &bad));
		for (uint32_t i = 0; i < messages; i++) {
			offsets[i] += parts[i].length;
			parts[i].addr += parts[i].length;
			wr[i].wr.rdma.remote_addr += parts[i].length;
		}
	}
}

static void send_all(void)
{
	static struct clearance fifo[SLOTS][MOST_MESSAGES];
	static int sizes[SLOTS][MOST_MESSAGES];
	static unsigned char data[3 * MESSAGE_BYTES];
	struct greeting own = {.fifo = (uintptr_t)fifo}, peer;
	struct ibv_mr *fifo_region, *sizes_region, *region;
	uint64_t scratch;
	struct ibv_mr *scratch_region;
	int others = 0;
	char done;

	domain = verbs.alloc_pd(device);
	queue = verbs.create_cq(device, SLOTS * count, NULL, NULL, 0);
	CHECK(domain && queue);
	scratch_region = registered(&scratch, sizeof(scratch), IBV_ACCESS_LOCAL_WRITE);
	fifo_region = registered(fifo, sizeof(fifo), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(!verbs.query_gid(device, 1, 3, &gid));
	for (int i = 0; i < count; i++)
		pairs[i] = make_pair(2 * SLOTS, 0, IBV_ACCESS_REMOTE_WRITE);
	own.key = fifo_region->rkey;
	join(&own, &peer);
	sizes_region = registered(sizes, sizeof(sizes), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	region = registered_buffer(data, sizeof(data));
	say("r", 1);
	for (int round = 0; round < ROUNDS; round++) {
		volatile struct clearance *slots = fifo[round % SLOTS];
		uint64_t number = (uint64_t)round + 1;

		for (uint32_t i = 0; i < messages_of(round); i++)
			for (uint32_t at = 0; at < size_of(round, i); at++)
				data[i * MESSAGE_BYTES + at] = byte_of(round, i, at);
		while (slots[0].number != number)
			poll(NULL, 0, 1);
		for (uint32_t i = 1; i < slots[0].messages; i++)
			while (slots[i].number != number)
				;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		CHECK(slots[0].messages == messages_of(round));
		post_messages(round, slots, data, region->lkey, sizes, sizes_region, &peer);
		await(count, IBV_WC_RDMA_WRITE, &others);
		CHECK(!others);
	}
	hear(&done, 1);
	for (int i = 0; i < count; i++)
		CHECK(!verbs.destroy_qp(pairs[i]));
	CHECK(!verbs.dereg_mr(fifo_region) && !verbs.dereg_mr(sizes_region) && !verbs.dereg_mr(scratch_region));
	CHECK(!verbs.dereg_mr(region) && !verbs.destroy_cq(queue) && !verbs.dealloc_pd(domain));
}

/* Read from the own host what a peer has written: behind the writes, so that they are in memory then. */
static bool flush(struct ibv_qp *pair, struct ibv_mr *host, const void *data, uint32_t key, int *others)
{
	struct ibv_sge element = {(uintptr_t)host->addr, 1, host->lkey};
	struct ibv_send_wr wr = {.wr_id = 1000, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	int failed;

	wr.wr.rdma.remote_addr = (uintptr_t)data;
	wr.wr.rdma.rkey = key;
	failed = ibv_post_send(pair, &wr, &bad);
	if (failed == EOPNOTSUPP)
		return false; /* of MRC */
	CHECK(!failed);
	await(1, IBV_WC_RDMA_READ, others);
	return true;
}

static void receive_all(void)
{
	static struct clearance slots[SLOTS][MOST_MESSAGES];
	static struct record records[SLOTS];
	static unsigned char data[3 * MESSAGE_BYTES];
	static int host;
	struct greeting own = {.fifo = (uintptr_t)records}, peer;
	struct ibv_mr *slots_region, *records_region, *host_region, *region;
	struct ibv_qp *flushing;
	bool flushed = true;
	int written = 0, signaled = 0;
	char ready;

	domain = verbs.alloc_pd(device);
	queue = verbs.create_cq(device, 2 * SLOTS * count, NULL, NULL, 0);
	CHECK(domain && queue);
	CHECK(!verbs.query_gid(device, 1, 3, &gid));
	for (int i = 0; i < count; i++)
		pairs[i] = make_pair(2 * SLOTS, SLOTS,
				     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ);
	slots_region = registered(slots, sizeof(slots), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	records_region = registered(records, sizeof(records), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	own.key = records_region->rkey;
	join(&own, &peer);
	/* A queue pair that is its own peer. */
	host_region = registered(&host, sizeof(host), IBV_ACCESS_LOCAL_WRITE);
	flushing = make_pair(SLOTS, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	connect_pair(flushing, flushing->qp_num, &gid, port.active_mtu);
	region = registered_buffer(data, sizeof(data));
	hear(&ready, 1);
	for (int round = 0; round < ROUNDS; round++) {
		int slot = round % SLOTS;
		uint32_t messages = messages_of(round);
		struct clearance *local = slots[slot];
		struct ibv_sge element = {(uintptr_t)local, messages * (uint32_t)sizeof(*local), slots_region->lkey};
		struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
		struct ibv_recv_wr receive = {.wr_id = (uint64_t)slot}, *bad_receive;

		for (int i = 0; i < count; i++)
			CHECK(!ibv_post_recv(pairs[i], &receive, &bad_receive));
		memset(records[slot].sizes, 0, sizeof(records[slot].sizes));
		for (uint32_t i = 0; i < messages; i++) {
			memset(data + i * MESSAGE_BYTES, 0xee, MESSAGE_BYTES);
			local[i] = (struct clearance){
				.address = (uintptr_t)data + i * MESSAGE_BYTES,
				.size = MESSAGE_BYTES,
				.keys = {region->rkey},
				.messages = messages,
				.tag = 7 + i,
				.number = (uint64_t)round + 1,
			};
		}
		wr.wr.rdma.remote_addr = peer.fifo + (uint64_t)slot * MOST_MESSAGES * sizeof(struct clearance);
		wr.wr.rdma.rkey = peer.key;
		/* Only what fits goes inline: NCCL allows it for one message. */
		wr.send_flags = in_line && messages == 1 ? IBV_SEND_INLINE : 0;
		if (!slot) { /* so that the send queue is emptied once in a while */
			wr.send_flags |= IBV_SEND_SIGNALED;
			signaled++;
		}
		CHECK(!ibv_post_send(pairs[0], &wr, &bad));
		await(count, IBV_WC_RECV_RDMA_WITH_IMM, &written);
		flushed = flush(flushing, host_region, data, region->rkey, &written) && flushed;
		for (uint32_t i = 0; i < messages; i++) {
			uint32_t size = size_of(round, i);

			CHECK(messages == 1 || records[slot].sizes[i] == (int)size);
			for (uint32_t at = 0; at < MESSAGE_BYTES; at++)
				CHECK(data[i * MESSAGE_BYTES + at] == (at < size ? byte_of(round, i, at) : 0xee));
		}
	}
	CHECK(written == signaled);
	printf("%d rounds, %s\n", ROUNDS, flushed ? "flushed" : "READ refused");
	say("d", 1);
	for (int i = 0; i < count; i++)
		CHECK(!verbs.destroy_qp(pairs[i]));
	CHECK(!verbs.destroy_qp(flushing) && !verbs.dereg_mr(host_region) && !verbs.dereg_mr(slots_region));
	CHECK(!verbs.dereg_mr(records_region) && !verbs.dereg_mr(region) && !verbs.destroy_cq(queue));
	CHECK(!verbs.dealloc_pd(domain));
}

int main(int words, char **word)
{
	role = words > 1 ? word[1] : "";
	if (words != 5) {
		fprintf(stderr, "usage: net_ib send|receive PAIRS INLINE SOCKET\n");
		return 2;
	}
	count = atoi(word[2]);
	in_line = atoi(word[3]);
	other = atoi(word[4]);
	CHECK(count > 0 && count <= MOST_PAIRS);
	look_up();
	find_device();
	if (!strcmp(role, "send"))
		send_all();
	else
		receive_all();
	return 0;
}
