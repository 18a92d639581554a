/* Forks, signals and deaths; as cases.c. */
#include "cases.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- forks and signals -------------------------------------------------------------------------------------------- */

static void forks(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct ibv_async_event event;
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *user;
	int status;
	pid_t child;

	CHECK(!ibv_fork_init());
	join(&a, &b);
	child = fork();
	if (!child) {
		struct end own;

		CHECK(post_write(&a, &b, a.qp, 1, 0, 8, 0, -1) == ENODEV);
		CHECK(mrc_poll_cq(a.cq, 1, &wc) == -1 && errno == ENODEV);
		CHECK(mrc_req_notify_cq(a.cq, 0) == ENODEV);
		CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == ENODEV);
		CHECK(ibv_get_async_event(a.context, &event) == -1 && errno == ENODEV);
		CHECK(!ibv_reg_mr(a.pd, a.memory, 8, 0) && errno == ENODEV);
		CHECK(mrc_destroy_qp(a.qp) == ENODEV && mrc_destroy_cq(a.cq) == ENODEV);
		CHECK(ibv_close_device(a.context) == -1 && errno == ENODEV);
		/* The child can have a device of its own. */
		own = open_end(paths[0]);
		close_end(&own);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	/* Memory was shared for copying by the fork: what the device writes must be seen here nevertheless. */
	fill(a.memory, 64, 6);
	CHECK(!post_write(&a, &b, a.qp, 2, 0, 64, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 2 && !memcmp(a.memory, b.memory, 64));
	close_end(&a);
	close_end(&b);
}

static void ignore(int number)
{
	(void)number;
}

static void signals(void)
{
	struct end a = open_end(paths[0]);
	struct sigaction action = {.sa_handler = ignore};
	struct mrc_cq *cq;
	void *user;

	sigaction(SIGALRM, &action, NULL);
	ualarm(50000, 1000);
	CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == EINTR);
	/* Requests to the agent go on. */
	for (int i = 0; i < 50; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(a.context);

		CHECK(pd && !ibv_dealloc_pd(pd));
	}
	ualarm(0, 0);
	close_end(&a);
}

/* -- deaths ------------------------------------------------------------------------------------------------------- */

/* Wait until the agent is killed. */
static void agent_dies(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct pollfd ready[2] = {{.events = POLLIN}, {.events = POLLIN}};
	struct ibv_async_event event;
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *user;
	int found;

	join(&a, &b);
	ready[0].fd = a.context->async_fd;
	CHECK(!mrc_get_comp_channel_fd(a.channel, &ready[1].fd));
	CHECK(poll(ready, 2, 0) == 0);
	puts("ready");
	fflush(stdout);
	CHECK(poll(ready, 2, 60000) > 0);
	CHECK(!ibv_get_async_event(a.context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	/* Once is enough, and nothing waits for ever. */
	CHECK(ibv_get_async_event(a.context, &event) == -1 && errno == ENODEV);
	CHECK(poll(ready, 1, 0) == 0);
	CHECK(mrc_get_cq_event(a.channel, &cq, &user) == -1 && errno == ENODEV);
	do {
		found = mrc_poll_cq(b.cq, 1, &wc);
	} while (!found);
	CHECK(found == -1 && errno == ENODEV);
	CHECK(post_write(&a, &b, a.qp, 1, 0, 8, IBV_SEND_SIGNALED, -1) == ENODEV);
	CHECK(!ibv_alloc_pd(a.context) && errno == ENODEV);
	CHECK(!mrc_destroy_qp(a.qp) && !mrc_destroy_cq(a.cq) && !mrc_destroy_comp_channel(a.channel));
	CHECK(!mrc_destroy_context(a.mrc) && !ibv_close_device(a.context));
	puts("done");
	exit(0);
}

/* Wait to be killed; with a child that lives on. */
static void is_killed(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	pid_t child;

	join(&a, &b);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	printf("%d\n", (int)child);
	fflush(stdout);
	pause();
}

/* End without destroying anything. */
static void leaves(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);

	join(&a, &b);
	CHECK(!post_write(&a, &b, a.qp, 1, 0, SIZE, IBV_SEND_SIGNALED, -1));
	_exit(0);
}

static const struct test_case cases[] = {
	{"forks", forks},
	{"signals", signals},
	{"agent_dies", agent_dies},
	{"is_killed", is_killed},
	{"leaves", leaves},
};

int main(int count, char **arguments)
{
	return run_case(cases, sizeof(cases) / sizeof(*cases), count, arguments);
}
