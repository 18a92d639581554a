/*
 * Programs that treat their agent badly, and a pair that must not notice: see `campaign.py`.
 *
 *     programs MODE SEED MILLISECONDS SOCKET
 *
 * Two of them, one on each host, exchange addresses over the file descriptor SOCKET, one end of a socket pair.
 *   verify0/1 writes blocks with immediates to the other and checks every byte that it receives, in turn, until SIGTERM
 *   flood     writes without end, until it is killed
 *   unmap     unmaps, protects or empties registered memory while writes in both directions use it
 *   scribble  overwrites at random places the rings that it shares with the agent
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <mrc.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BYTES (1 << 18)
#define DEPTH 16
#define MAPPINGS 64

struct address {
	union ibv_gid gid;
	uint64_t memory;
	uint32_t number;
	uint32_t psn;
	uint32_t key;
};

struct end {
	struct ibv_context *device;
	struct ibv_pd *domain;
	struct ibv_mr *region;
	struct mrc_context *context;
	struct mrc_cq *queue;
	struct mrc_qp *pair;
	unsigned char *memory; /* BYTES to send from, and BYTES to receive into */
	unsigned int ended[2]; /* completions of sends and of receives that nothing has waited for yet */
	struct address peer;
};

static uint64_t state;
static int peer_fd;
static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static uint64_t pick(uint64_t bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % bound;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "programs: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void open_end(struct end *end)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct mrc_qp_init_attr attr = {.cap = {.max_send_wr = DEPTH + 1, .max_recv_wr = 2 * DEPTH, .max_send_sge = 1}};

	need(devices && devices[0], "no device");
	end->device = ibv_open_device(devices[0]);
	need(end->device, "opening the device");
	ibv_free_device_list(devices);
	end->context = mrc_create_context(end->device, NULL);
	end->domain = ibv_alloc_pd(end->device);
	need(end->context && end->domain, "a context and a domain");
	end->memory = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(end->memory != MAP_FAILED, "memory");
	end->region = ibv_reg_mr(end->domain, end->memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	end->queue = mrc_create_cq(end->context, 8 * DEPTH, NULL, NULL, 0);
	need(end->region && end->queue, "a region and a queue");
	attr.pd = end->domain;
	attr.send_cq = attr.recv_cq = end->queue;
	end->pair = mrc_create_qp(end->context, &attr);
	need(end->pair, "a queue pair");
}

static void join(struct end *end)
{
	struct address own = {.psn = (uint32_t)pick(1 << 24)};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
	struct mrc_qp_attr more = {.timeout = 0};

	need(!mrc_get_qpn(end->pair, &own.number) && !ibv_query_gid(end->device, 1, 0, &own.gid), "the own address");
	own.memory = (uintptr_t)end->memory + BYTES;
	own.key = end->region->rkey;
	need(!mrc_modify_qp(end->pair, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &more, 0),
	     "INIT");
	for (int i = 0; i < 2 * DEPTH; i++) {
		struct ibv_recv_wr receive = {.wr_id = 1}, *bad;

		need(!mrc_post_recv(end->pair, &receive, &bad), "a receive");
	}
	need(write(peer_fd, &own, sizeof(own)) == sizeof(own), "the peer is gone");
	need(read(peer_fd, &end->peer, sizeof(end->peer)) == sizeof(end->peer), "the peer is gone");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_4096;
	attr.dest_qp_num = end->peer.number;
	attr.rq_psn = end->peer.psn;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = end->peer.gid;
	need(!mrc_modify_qp(end->pair, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, &more, 0),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = own.psn;
	need(!mrc_modify_qp(end->pair, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &more, 0), "RTS");
	need(write(peer_fd, "r", 1) == 1 && read(peer_fd, &own, 1) == 1, "the peer is gone");
}

static int post(struct end *end, uint32_t at, uint32_t length, bool immediate)
{
	struct ibv_sge element = {.addr = (uintptr_t)end->memory + at, .length = length, .lkey = end->region->lkey};
	struct ibv_send_wr request = {.sg_list = &element, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
				      .opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE};
	struct ibv_send_wr *bad;

	request.wr.rdma.remote_addr = end->peer.memory + at;
	request.wr.rdma.rkey = end->peer.key;
	return mrc_post_send(end->pair, &request, &bad);
}

static bool peer_has_ended(void)
{
	struct pollfd peer = {.fd = peer_fd, .events = POLLIN};

	return poll(&peer, 1, 0) != 0;
}

/* Wait for a completion of one kind; false when the peer has ended. A failed one ends the program, unless the peer has
 * ended before. The peer's answer may come before the acknowledgement of what it answers, so that those of the other kind
 * are counted. */
static bool await(struct end *end, bool receive)
{
	while (!end->ended[receive]) {
		struct ibv_wc done;
		struct timespec pause = {.tv_nsec = 100000};
		int count = mrc_poll_cq(end->queue, 1, &done);

		need(count >= 0, "the agent is gone");
		if (!count) {
			if (peer_has_ended())
				return false;
			nanosleep(&pause, NULL);
			continue;
		}
		if (done.status != IBV_WC_SUCCESS) {
			if (peer_has_ended())
				return false;
			fprintf(stderr, "programs: completion %d\n", done.status);
			exit(3);
		}
		end->ended[!!(done.opcode & IBV_WC_RECV)]++;
	}
	end->ended[receive]--;
	return true;
}

static unsigned char pattern(uint64_t round, uint64_t at)
{
	return (unsigned char)(round * 131 + at * 7 + (at >> 8));
}

static int verify(struct end *end, int64_t until, bool first)
{
	uint64_t round = 0;
	unsigned char *in = end->memory + BYTES;

	for (;; round++) {
		uint32_t length = (uint32_t)(1 + (round * 7919) % BYTES);
		bool sending = (round % 2 == 0) == first;

		if (sending && (stopped || now_ms() > until))
			break;
		if (sending) {
			for (uint32_t i = 0; i < length; i++)
				end->memory[i] = pattern(round, i);
			need(!post(end, 0, length, true), "a write");
			if (!await(end, false))
				break;
			continue;
		}
		if (!await(end, true))
			break;
		for (uint32_t i = 0; i < length; i++) {
			if (in[i] != pattern(round, i)) {
				fprintf(stderr, "programs: round %llu: byte %u is wrong\n", (unsigned long long)round, i);
				return 1;
			}
		}
		{
			struct ibv_recv_wr receive = {.wr_id = 1}, *bad;

			need(!mrc_post_recv(end->pair, &receive, &bad), "a receive");
		}
	}
	/* The other may have ended first. */
	if (write(peer_fd, "e", 1) != 1)
		errno = 0;
	printf("%llu rounds\n", (unsigned long long)round);
	return 0;
}

/* Try to take from the agent the file behind exchanged pages: an access beyond its end would be the agent's end. */
static void shorten(const unsigned char *place)
{
	unsigned long long from, to;
	char line[512], path[128];
	FILE *maps = fopen("/proc/self/maps", "re");
	int file;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx", &from, &to) != 2 || (uintptr_t)place < from || (uintptr_t)place >= to)
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx", from, to);
		file = open(path, O_RDWR | O_CLOEXEC);
		if (file >= 0) {
			if (!ftruncate(file, 4096))
				fprintf(stderr, "programs: shared memory could be cut off\n");
			close(file);
		}
		break;
	}
	if (maps)
		fclose(maps);
}

/* Register a part again, and give it back. */
static void again(struct end *end, size_t at, size_t length)
{
	struct ibv_mr *more = ibv_reg_mr(end->domain, end->memory + at, length, IBV_ACCESS_LOCAL_WRITE);

	if (more)
		ibv_dereg_mr(more);
}

static void flood(struct end *end, int64_t until, bool unmapping)
{
	uint32_t under_way = 0;
	int64_t change = now_ms() + (int64_t)pick(30);

	while (now_ms() < until) {
		struct ibv_wc done[DEPTH];
		int count;

		while (under_way < DEPTH && !post(end, 0, (uint32_t)(1 + pick(BYTES)), false))
			under_way++;
		count = mrc_poll_cq(end->queue, DEPTH, done);
		if (count < 0)
			return;
		for (int i = 0; i < count; i++)
			if (!(done[i].opcode & IBV_WC_RECV))
				under_way--;
		if (!count)
			poll(NULL, 0, 1);
		if (unmapping && now_ms() > change) {
			size_t at = 4096 * pick(2 * BYTES / 4096), length = 4096 * (1 + pick(32));

			if (at + length > 2 * BYTES)
				length = 2 * BYTES - at;
			switch (pick(6)) {
			case 0:
				munmap(end->memory + at, length);
				break;
			case 1:
				mprotect(end->memory + at, length, PROT_NONE);
				break;
			case 2:
				madvise(end->memory + at, length, MADV_DONTNEED);
				break;
			case 3:
				madvise(end->memory + at, length, MADV_REMOVE);
				break;
			case 4:
				shorten(end->memory);
				break;
			default:
				again(end, at, length);
			}
			change = now_ms() + (int64_t)pick(30);
		}
	}
}

/* Overwrite what the program shares with the agent, and make the agent look at it. */
static void scribble(struct end *end, int64_t until)
{
	struct {
		unsigned char *start;
		size_t length;
	} found[MAPPINGS];
	size_t count = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	need(maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps)) {
		unsigned long long from, to;

		if (count < MAPPINGS && strstr(line, "memfd:mrc-verbs") && sscanf(line, "%llx-%llx", &from, &to) == 2) {
			found[count].start = (unsigned char *)(uintptr_t)from;
			found[count++].length = (size_t)(to - from);
		}
	}
	fclose(maps);
	need(count >= 3, "the rings");
	/* Wrong counters end the connection at once, so that half of these programs spoil only entries of work requests. */
	bool entries_only = pick(2);
	size_t largest = 0;

	for (size_t i = 1; i < count; i++)
		if (found[i].length > found[largest].length)
			largest = i;
	while (now_ms() < until) {
		for (uint64_t burst = 1 + pick(40); burst; burst--) {
			size_t which = entries_only ? largest : pick(count);
			/* Most of what matters is at the beginning: counters, and the entries that are read next. */
			size_t room = pick(3) ? 8192 : found[which].length;
			size_t at = pick(room < found[which].length ? room : found[which].length);
			size_t length = 1 + pick(entries_only ? 3 : 16);

			if (entries_only && at < 128)
				at = 128;

			for (size_t i = at; i < at + length && i < found[which].length; i++)
				found[which].start[i] = pick(2) ? (unsigned char)pick(256) : (unsigned char)pick(12);
		}
		if (post(end, 0, 100, pick(2)) == ENODEV)
			return;
		if (pick(4) == 0) {
			struct ibv_wc done[4];
			struct ibv_port_attr port;

			if (mrc_poll_cq(end->queue, 4, done) < 0)
				return;
			if (pick(8) == 0 && ibv_query_port(end->device, 1, &port))
				return;
		}
	}
}

int main(int count, char **words)
{
	struct end end = {0};
	int64_t until;

	if (count != 5) {
		fprintf(stderr, "usage: programs verify0|verify1|flood|unmap|scribble SEED MILLISECONDS SOCKET\n");
		return 2;
	}
	state = strtoull(words[2], NULL, 10) * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
	until = now_ms() + atoll(words[3]);
	peer_fd = atoi(words[4]);
	signal(SIGPIPE, SIG_IGN);
	if (!strncmp(words[1], "verify", 6))
		signal(SIGTERM, stop);
	open_end(&end);
	join(&end);
	if (!strncmp(words[1], "verify", 6))
		return verify(&end, until, words[1][6] == '0');
	if (!strcmp(words[1], "scribble"))
		scribble(&end, until);
	else
		flood(&end, until, !strcmp(words[1], "unmap"));
	return 0;
}
