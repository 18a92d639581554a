/* Counts what Python allocates for objects and takes from the memory allocator beneath, from `begin` to `end`. */
#include <Python.h>

enum { DOMAINS = 2 };

static const PyMemAllocatorDomain domains[DOMAINS] = {PYMEM_DOMAIN_OBJ, PYMEM_DOMAIN_MEM};
static PyMemAllocatorEx before[DOMAINS];
static unsigned long long count;

static void *counted_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    count++;
    return allocator->malloc(allocator->ctx, size);
}

static void *counted_calloc(void *context, size_t number, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    count++;
    return allocator->calloc(allocator->ctx, number, size);
}

static void *counted_realloc(void *context, void *block, size_t size)
{
    PyMemAllocatorEx *allocator = context;
    count++;
    return allocator->realloc(allocator->ctx, block, size);
}

static void freed(void *context, void *block)
{
    PyMemAllocatorEx *allocator = context;
    allocator->free(allocator->ctx, block);
}

void begin(void)
{
    for (int i = 0; i < DOMAINS; i++) {
        PyMem_GetAllocator(domains[i], &before[i]);
        PyMemAllocatorEx counted = {&before[i], counted_malloc, counted_calloc, counted_realloc, freed};
        PyMem_SetAllocator(domains[i], &counted);
    }
    count = 0;
}

unsigned long long end(void)
{
    unsigned long long counted = count;
    for (int i = 0; i < DOMAINS; i++)
        PyMem_SetAllocator(domains[i], &before[i]);
    return counted;
}
