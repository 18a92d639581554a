/* Protection domains, and memory regions: any memory of the program, which the agent reaches by /proc/PID/mem or has mapped (exchange.h). */
#include "internal.h"
#include "maps.h"

#include <stdlib.h>

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
	FILE *maps = maps_open();
	uint64_t reached = address;
	struct mapping mapping;

	if (!maps)
		return 0; /* without /proc the agent has no way to the memory either, and says so */
	while (reached - address < length && maps_next(maps, &mapping)) {
		if (mapping.end <= reached)
			continue;
		if (mapping.start > reached || !mapping.readable || (write && !mapping.writable))
			break;
		reached = mapping.end;
	}
	fclose(maps);
	return reached - address >= length ? 0 : EFAULT;
}

static int check_access(struct lab_context *context, uint64_t address, uint64_t length, unsigned int access)
{
	if (is_forked(context))
		return ENODEV;
	if (access & ~(unsigned int)(AGENT_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IGNORED_ACCESS))
		return EINVAL;
	if (access & IBV_ACCESS_MW_BIND)
		return EOPNOTSUPP;
	if (!length || address + length < address)
		return EINVAL;
	return check_mapped(address, length, access & AGENT_ACCESS & ~(unsigned int)IBV_ACCESS_REMOTE_READ);
}

static void write_region(struct writer *writer, const struct lab_mr *mr, const uint32_t *key)
{
	uint64_t address = (uintptr_t)mr->base.addr;

	write_begin(writer, "reg_user_mr");
	write_number(writer, "pd", mr->base.pd->handle);
	write_number(writer, "address", address);
	write_number(writer, "length", mr->base.length);
	write_number(writer, "access", mr->access & AGENT_ACCESS);
	if (mr->iova != address)
		write_number(writer, "iova", mr->iova);
	if (key)
		write_number(writer, "key", *key);
}

/* Register what `mr` describes, in the place of the region with a key if there is one. */
static int register_region(struct lab_context *context, struct lab_mr *mr, const uint32_t *key)
{
	uint64_t address = (uintptr_t)mr->base.addr;
	struct span pages = {0, 0};
	struct writer writer;
	struct answer answer;
	uint32_t number;
	int failed;

	mr->exchanged = exchange_find(context, address, mr->base.length);
	if (!mr->exchanged)
		pages = exchange_offer(address, mr->base.length);
	write_region(&writer, mr, key);
	if (mr->exchanged) {
		write_number(&writer, "memory", exchange_number(mr->exchanged));
	} else if (pages.end) {
		write_open(&writer, "pages", '[');
		write_number(&writer, NULL, pages.first);
		write_number(&writer, NULL, pages.end);
		write_close(&writer, ']');
	}
	failed = lab_ask(context, &writer, &answer);
	if (failed) {
		exchange_leave(mr->exchanged);
		return failed;
	}
	mr->base.lkey = mr->base.rkey = mr->base.handle = (uint32_t)json_number(answer.root, "key", 0);
	number = (uint32_t)json_number(answer.root, "memory", 0);
	answer_free(&answer);
	if (!answer.count)
		return 0;
	mr->exchanged = exchange_pages(context, pages, number, answer.files[0]);
	if (mr->exchanged)
		return 0;
	/* The agent must not use a file that has not taken their place. */
	write_region(&writer, mr, &mr->base.lkey);
	return lab_ask(context, &writer, NULL);
}

struct ibv_mr *lab_reg_mr(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova, unsigned int access)
{
	struct lab_context *context = lab_of(pd->context);
	int failed = check_access(context, (uintptr_t)memory, length, access);
	struct lab_mr *mr = failed ? NULL : calloc(1, sizeof(*mr));

	if (!mr) {
		errno = failed ? failed : ENOMEM;
		return NULL;
	}
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.addr = memory;
	mr->base.length = length;
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	failed = register_region(context, mr, NULL);
	if (failed) {
		free(mr);
		errno = failed;
		return NULL;
	}
	return &mr->base;
}

/* Register the memory again with the same keys, in one step. */
int lab_rereg_mr(struct ibv_mr *base, int flags, struct ibv_pd *pd, void *memory, size_t length, int access)
{
	struct lab_mr *mr = CONTAINER(base, struct lab_mr, base);
	struct lab_context *context = lab_of(base->context);
	struct lab_mr made = *mr;
	int failed;

	if (!flags || flags & ~(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		made.base.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		made.access = (unsigned int)access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		made.base.addr = memory;
		made.base.length = length;
		made.iova = (uintptr_t)memory;
	}
	failed = check_access(context, (uintptr_t)made.base.addr, made.base.length, made.access);
	if (!failed)
		failed = register_region(context, &made, &base->lkey);
	if (failed) {
		errno = failed;
		return IBV_REREG_MR_ERR_INPUT; /* the region is as it was */
	}
	exchange_leave(mr->exchanged);
	*mr = made;
	return 0;
}

int lab_dereg_mr(struct ibv_mr *base)
{
	struct lab_mr *mr = CONTAINER(base, struct lab_mr, base);
	struct writer writer;
	int failed;

	write_begin(&writer, "dereg_mr");
	write_number(&writer, "key", base->lkey);
	failed = lab_ask(lab_of(base->context), &writer, NULL);
	if (!failed) {
		exchange_leave(mr->exchanged);
		free(mr);
	}
	return failed;
}
