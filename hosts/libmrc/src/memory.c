/* Protection domains, and memory regions: any memory of the program, which the agent reaches by /proc/PID/mem or has mapped (exchange.h). */
#include "internal.h"

#include <stdlib.h>

#define AGENT_ACCESS                                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
/* What changes nothing here: memory is never pinned, and order is the protocol's. */
#define IGNORED_ACCESS (IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND)

struct ibv_pd *lab_alloc_pd(struct ibv_context *base)
{
	struct lab_context *context = lab_of(base);
	struct lab_pd *pd = calloc(1, sizeof(*pd));
	struct answer answer;
	int failed;

	if (!pd)
		return NULL;
	failed = lab_ask(context, REQUEST("alloc_pd", ""), &answer);
	if (failed)
		return give_up(pd, failed);
	pd->base.context = base;
	pd->base.handle = (uint32_t)number_in(answer.root, "pd", 0);
	answer_free(&answer);
	return &pd->base;
}

int lab_dealloc_pd(struct ibv_pd *base)
{
	struct lab_pd *pd = CONTAINER(base, struct lab_pd, base);
	int failed = 0;

	if (!pd->parent)
		failed = lab_ask(lab_of(base->context), REQUEST("dealloc_pd", "sI", "pd", INT(base->handle)), NULL);
	if (!failed)
		free(pd);
	return failed;
}

static int check_access(struct lab_context *context, uint64_t address, uint64_t length, unsigned int access)
{
	if (is_forked(context))
		return ENODEV;
	if (access & ~(unsigned int)(AGENT_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IGNORED_ACCESS))
		return refused(EINVAL, "reg_mr: access %#x has bits that this device does not know", access);
	if (access & IBV_ACCESS_MW_BIND)
		return refused(EOPNOTSUPP, "reg_mr: access %#x: there are no memory windows to bind", access);
	if (!length || address + length < address)
		return refused(EINVAL, "reg_mr: a region has at least 1 byte, and does not wrap around");
	return memory_check(address, length, access & AGENT_ACCESS & ~(unsigned int)IBV_ACCESS_REMOTE_READ);
}

/* Return a request for a region. `key`: of which region it takes the place, if of one. `memory`, `pages`: of the pages
 * that the agent has mapped or may map; NULL, or used up. */
static json_t *region_request(const struct lab_mr *mr, const uint32_t *key, json_t *memory, json_t *pages)
{
	uint64_t address = (uintptr_t)mr->base.addr;

	return REQUEST("reg_user_mr", "sIsIsIsIso*so*so*so*", "pd", INT(mr->base.pd->handle), "address", INT(address),
		       "length", INT(mr->base.length), "access", INT(mr->access & AGENT_ACCESS), "iova",
		       mr->iova != address ? json_integer(INT(mr->iova)) : NULL, "key", key ? json_integer(*key) : NULL,
		       "memory", memory, "pages", pages);
}

/* Register what `mr` describes, in the place of the region with a key if there is one. */
static int register_region(struct lab_context *context, struct lab_mr *mr, const uint32_t *key)
{
	uint64_t address = (uintptr_t)mr->base.addr;
	struct span pages = {0, 0};
	struct answer answer;
	uint32_t number;
	int failed;

	mr->exchanged = exchange_find(context, address, mr->base.length);
	if (!mr->exchanged)
		pages = exchange_offer(address, mr->base.length);
	failed = lab_ask(context,
			 region_request(mr, key, mr->exchanged ? json_integer(exchange_number(mr->exchanged)) : NULL,
					pages.end ? json_pack("[II]", INT(pages.first), INT(pages.end)) : NULL),
			 &answer);
	if (failed) {
		exchange_leave(mr->exchanged);
		return failed;
	}
	mr->base.lkey = mr->base.rkey = mr->base.handle = (uint32_t)number_in(answer.root, "key", 0);
	number = (uint32_t)number_in(answer.root, "memory", 0);
	answer_free(&answer);
	if (!answer.count)
		return 0;
	mr->exchanged = exchange_pages(context, pages, number, answer.files[0]);
	if (mr->exchanged)
		return 0;
	/* The agent must not use a file that has not taken their place. */
	return lab_ask(context, region_request(mr, &mr->base.lkey, NULL, NULL), NULL);
}

struct ibv_mr *lab_reg_mr(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova, unsigned int access)
{
	struct lab_context *context = lab_of(pd->context);
	int failed = check_access(context, (uintptr_t)memory, length, access);
	struct lab_mr *mr = failed ? NULL : calloc(1, sizeof(*mr));

	if (!mr)
		return give_up(NULL, failed ? failed : ENOMEM);
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.addr = memory;
	mr->base.length = length;
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	failed = register_region(context, mr, NULL);
	if (failed)
		return give_up(mr, failed);
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
		errno = refused(EINVAL, "rereg_mr: flags %#x: none, or unknown ones", (unsigned int)flags);
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
	int failed = lab_ask(lab_of(base->context), REQUEST("dereg_mr", "sI", "key", INT(base->lkey)), NULL);

	if (!failed) {
		exchange_leave(mr->exchanged);
		free(mr);
	}
	return failed;
}
