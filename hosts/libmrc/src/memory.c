/* Protection domains, and memory regions: any memory of the program, which the agent reaches by /proc/PID/mem. */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AGENT_ACCESS                                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
/* What changes nothing here: memory is never pinned, and order is the protocol's. */
#define IGNORED_ACCESS (IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND)

struct ibv_pd *lab_alloc_pd(struct ibv_context *base)
{
	struct lab_context *context = lab_of(base);
	struct lab_pd *pd = calloc(1, sizeof(*pd));
	struct writer writer;
	struct answer answer;
	int failed;

	if (!pd)
		return NULL;
	write_begin(&writer, "alloc_pd");
	failed = lab_ask(context, &writer, &answer);
	if (failed) {
		free(pd);
		errno = failed;
		return NULL;
	}
	pd->base.context = base;
	pd->base.handle = (uint32_t)json_number(answer.root, "pd", 0);
	answer_free(&answer);
	return &pd->base;
}

int lab_dealloc_pd(struct ibv_pd *base)
{
	struct lab_pd *pd = CONTAINER(base, struct lab_pd, base);
	struct writer writer;
	int failed = 0;

	if (!pd->parent) {
		write_begin(&writer, "dealloc_pd");
		write_number(&writer, "pd", base->handle);
		failed = lab_ask(lab_of(base->context), &writer, NULL);
	}
	if (!failed)
		free(pd);
	return failed;
}

/*
 * Check that memory is mapped, and can be written to if it is to be. The agent's writes by /proc/PID/mem pass over
 * the protection of pages, so that this is the only check, as pinning is on a NIC.
 */
static int check_mapped(uint64_t address, uint64_t length, bool write)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t reached = address;
	char line[512];

	if (!maps)
		return 0; /* without /proc the agent has no way to the memory either, and says so */
	while (reached - address < length && fgets(line, sizeof(line), maps)) {
		unsigned long long start, end;
		char rights[5];
		char *newline = strchr(line, '\n');

		/* A file's name may be longer than the line; its rest begins with no address. */
		while (!newline) {
			char rest[512];

			if (!fgets(rest, sizeof(rest), maps))
				break;
			newline = strchr(rest, '\n');
		}
		if (sscanf(line, "%llx-%llx %4s", &start, &end, rights) != 3 || end <= reached)
			continue;
		if (start > reached || rights[0] != 'r' || (write && rights[1] != 'w'))
			break;
		reached = end;
	}
	fclose(maps);
	return reached - address >= length ? 0 : EFAULT;
}

struct ibv_mr *lab_reg_mr(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova, unsigned int access)
{
	struct lab_context *context = lab_of(pd->context);
	uint64_t address = (uintptr_t)memory;
	struct lab_mr *mr;
	struct writer writer;
	struct answer answer;
	int failed = 0;

	if (is_forked(context))
		failed = ENODEV;
	else if (access & ~(unsigned int)(AGENT_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IGNORED_ACCESS))
		failed = EINVAL;
	else if (access & IBV_ACCESS_MW_BIND)
		failed = EOPNOTSUPP;
	else if (!length || address + length < address)
		failed = EINVAL;
	else
		failed = check_mapped(address, length, access & AGENT_ACCESS & ~(unsigned int)IBV_ACCESS_REMOTE_READ);
	mr = failed ? NULL : calloc(1, sizeof(*mr));
	if (!mr) {
		errno = failed ? failed : ENOMEM;
		return NULL;
	}
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	write_begin(&writer, "reg_user_mr");
	write_number(&writer, "pd", pd->handle);
	write_number(&writer, "address", address);
	write_number(&writer, "length", length);
	write_number(&writer, "access", access & AGENT_ACCESS);
	if (iova != address)
		write_number(&writer, "iova", iova);
	failed = lab_ask(context, &writer, &answer);
	if (failed) {
		free(mr);
		errno = failed;
		return NULL;
	}
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.addr = memory;
	mr->base.length = length;
	mr->base.lkey = mr->base.rkey = mr->base.handle = (uint32_t)json_number(answer.root, "key", 0);
	mr->iova = iova;
	mr->access = access;
	answer_free(&answer);
	return &mr->base;
}

static int deregister(struct lab_context *context, uint32_t key)
{
	struct writer writer;

	write_begin(&writer, "dereg_mr");
	write_number(&writer, "key", key);
	return lab_ask(context, &writer, NULL);
}

/* Register the memory again, and deregister the old region; its keys change, which programs must expect. */
int lab_rereg_mr(struct ibv_mr *base, int flags, struct ibv_pd *pd, void *memory, size_t length, int access)
{
	struct lab_mr *mr = CONTAINER(base, struct lab_mr, base);
	bool move = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	uint32_t old = base->lkey;
	struct ibv_mr *made;

	if (!flags || flags & ~(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = base->pd;
	made = lab_reg_mr(pd, move ? memory : base->addr, move ? length : base->length,
			  move ? (uintptr_t)memory : mr->iova,
			  flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : mr->access);
	if (!made)
		return IBV_REREG_MR_ERR_INPUT;
	*mr = *CONTAINER(made, struct lab_mr, base);
	free(made);
	errno = deregister(lab_of(base->context), old);
	return errno ? IBV_REREG_MR_ERR_CMD : 0;
}

int lab_dereg_mr(struct ibv_mr *base)
{
	int failed = deregister(lab_of(base->context), base->lkey);

	if (!failed)
		free(CONTAINER(base, struct lab_mr, base));
	return failed;
}
