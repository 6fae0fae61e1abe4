/* Shared writable mappings: remembered, so that msync can log what they hold. */
#include "shim.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define MAPPINGS_MAX 1024
static struct mapping {
    char *memory;
    size_t length;
    int64_t offset;
    uint64_t ino;
} mappings[MAPPINGS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(struct mapping mapping)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (!mappings[i].length) {
            mappings[i] = mapping;
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* Removes the mappings that [memory, memory+length) touches; the last of them is returned. */
static struct mapping withdraw(char *memory, size_t length)
{
    struct mapping found = {0};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (mappings[i].length && mappings[i].memory < memory + length && memory < mappings[i].memory + mappings[i].length) {
            found = mappings[i];
            mappings[i].length = 0;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    struct file file;
    int shares = shared && fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && track(fd, &file) == REGULAR;
    void *memory = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    /* A read-only descriptor cannot become a writable mapping later; a writable one can, by mprotect. */
    if (shares && memory != MAP_FAILED && ((protection & PROT_WRITE) || (syscall(SYS_fcntl, fd, F_GETFL, 0) & O_ACCMODE) == O_RDWR)) {
        if (protection & PROT_WRITE)
            unseen_add(file.ino);
        remember((struct mapping){memory, length, offset, file.ino});
    }
    return memory;
}
EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

EXPORT int mprotect(void *memory, size_t length, int protection)
{
    if (shared && (protection & PROT_WRITE)) {
        struct mapping found = withdraw(memory, length);
        if (found.length) {
            unseen_add(found.ino);
            remember(found);
        }
    }
    return (int)syscall(SYS_mprotect, memory, length, protection);
}

EXPORT int munmap(void *memory, size_t length)
{
    if (shared)
        withdraw(memory, length);
    return (int)syscall(SYS_munmap, memory, length);
}

EXPORT void *mremap(void *memory, size_t length, size_t new_length, int flags, ...)
{
    void *address = NULL;
    if (flags & MREMAP_FIXED) {
        va_list rest;
        va_start(rest, flags);
        address = va_arg(rest, void *);
        va_end(rest);
    }
    struct mapping found = shared ? withdraw(memory, length) : (struct mapping){0};
    void *moved = (void *)syscall(SYS_mremap, memory, length, new_length, flags, address);
    if (found.length) {
        if (moved != MAP_FAILED) {
            found.memory = moved;
            found.length = new_length;
        }
        remember(found);
    }
    return moved;
}

EXPORT int msync(void *memory, size_t length, int flags)
{
    if (!shared || !(flags & MS_SYNC))
        return (int)syscall(SYS_msync, memory, length, flags);
    struct mapping found = withdraw(memory, length);
    if (!found.length)
        return (int)syscall(SYS_msync, memory, length, flags);
    remember(found);
    int64_t offset = found.offset + ((char *)memory - found.memory);
    snapshot_memory(found.ino, offset, memory, length);
    struct record fields = sync_of(found.ino, FLAG_DATA_ONLY);
    fields.offset = offset;
    fields.length = length;
    int error = sync_begin(&fields);
    if (!error && !shared->skip_sync && syscall(SYS_msync, memory, length, flags))
        error = errno;
    sync_end(&fields, error);
    if (error)
        errno = error;
    return error ? -1 : 0;
}
