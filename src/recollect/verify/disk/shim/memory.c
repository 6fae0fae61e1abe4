/* Shared writable mappings: remembered, so that msync can log what they hold. */
#include "shim.h"

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

static size_t pages(size_t length) { return (length + PAGE - 1) & ~(size_t)(PAGE - 1); }

/* With the lock held. A full table forgets; the self-check finds what went unseen because of that. The length is set
 * last: a child that was forked meanwhile has the whole entry or none. */
static void put(struct mapping mapping)
{
    for (int i = 0; i < MAPPINGS_MAX && mapping.length; i++)
        if (!mappings[i].length) {
            mappings[i].memory = mapping.memory;
            mappings[i].offset = mapping.offset;
            mappings[i].ino = mapping.ino;
            __atomic_store_n(&mappings[i].length, mapping.length, __ATOMIC_RELEASE);
            return;
        }
}

static void remember(struct mapping mapping)
{
    sigset_t before = hold(LOCK_MAPPINGS);
    put(mapping);
    let_go(LOCK_MAPPINGS, before);
}

/* The part of a mapping that lies in [memory, memory+length); its length is 0 if none does. */
static struct mapping part(struct mapping mapping, char *memory, size_t length)
{
    char *start = mapping.memory > memory ? mapping.memory : memory;
    char *end = mapping.memory + mapping.length < memory + length ? mapping.memory + mapping.length : memory + length;
    if (!mapping.length || start >= end)
        return (struct mapping){0};
    return (struct mapping){start, (size_t)(end - start), mapping.offset + (start - mapping.memory), mapping.ino};
}

/* What is mapped in [memory, memory+length), at most `most` pieces of it. */
static int find(char *memory, size_t length, struct mapping *found, int most)
{
    int count = 0;
    sigset_t before = hold(LOCK_MAPPINGS);
    for (int i = 0; i < MAPPINGS_MAX && count < most; i++) {
        struct mapping piece = part(mappings[i], memory, length);
        if (piece.length)
            found[count++] = piece;
    }
    let_go(LOCK_MAPPINGS, before);
    return count;
}

/* [memory, memory+length) is about to hold something else; the parts of a mapping on either side of it stay. */
static void cut(char *memory, size_t length)
{
    sigset_t before = hold(LOCK_MAPPINGS);
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        struct mapping whole = mappings[i];
        if (!part(whole, memory, length).length)
            continue;
        char *end = memory + length;
        if (whole.memory < memory)
            put(part(whole, whole.memory, (size_t)(memory - whole.memory)));
        if (end < whole.memory + whole.length)
            put(part(whole, end, (size_t)(whole.memory + whole.length - end)));
        __atomic_store_n(&mappings[i].length, 0, __ATOMIC_RELEASE);
    }
    let_go(LOCK_MAPPINGS, before);
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    struct file file;
    int shares = shared && fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && track(fd, &file) == REGULAR;
    if (shared && (flags & MAP_FIXED))
        cut(address, pages(length));
    void *memory = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    /* A read-only descriptor cannot become a writable mapping later; a writable one can, by mprotect. */
    if (shares && memory != MAP_FAILED && ((protection & PROT_WRITE) || (syscall(SYS_fcntl, fd, F_GETFL, 0) & O_ACCMODE) == O_RDWR)) {
        if (protection & PROT_WRITE)
            unseen_add(file.ino);
        remember((struct mapping){memory, pages(length), offset, file.ino});
    }
    return memory;
}
EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

#define PIECES_MAX 64 /* more files than that are not mapped side by side */

EXPORT int mprotect(void *memory, size_t length, int protection)
{
    struct mapping found[PIECES_MAX];
    int count = shared && (protection & PROT_WRITE) ? find(memory, pages(length), found, PIECES_MAX) : 0;
    for (int i = 0; i < count; i++)
        unseen_add(found[i].ino);
    return (int)syscall(SYS_mprotect, memory, length, protection);
}

EXPORT int munmap(void *memory, size_t length)
{
    if (shared)
        cut(memory, pages(length)); /* before the call: afterwards another thread may be given the same address */
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
    struct mapping found = {0};
    if (shared) {
        find(memory, length ? pages(length) : PAGE, &found, 1); /* length 0 makes a second mapping of the same pages */
        cut(memory, pages(length));
        if (address)
            cut(address, pages(new_length));
    }
    void *moved = (void *)syscall(SYS_mremap, memory, length, new_length, flags, address);
    if (found.length && moved != MAP_FAILED)
        remember((struct mapping){moved, pages(new_length), found.offset, found.ino});
    else if (found.length && length)
        remember(found);
    return moved;
}

static int sync_piece(const struct mapping *piece, int flags)
{
    snapshot_memory(piece->ino, piece->offset, piece->memory, piece->length);
    struct record fields = sync_of(piece->ino, FLAG_DATA_ONLY);
    fields.offset = piece->offset;
    fields.length = piece->length;
    int error = sync_begin(&fields);
    if (!error && !shared->skip_sync && syscall(SYS_msync, piece->memory, piece->length, flags))
        error = errno;
    sync_end(&fields, error);
    return error;
}

/* Two threads may sync the same mapping at once and each log it, so neither takes it out of the table. */
EXPORT int msync(void *memory, size_t length, int flags)
{
    struct mapping found[PIECES_MAX];
    int count = shared && (flags & MS_SYNC) ? find(memory, length, found, PIECES_MAX) : 0, error = 0;
    size_t synced = 0;
    for (int i = 0; i < count && !error; i++) {
        error = sync_piece(&found[i], flags);
        synced += found[i].length;
    }
    if (!error && (!count || synced < length))
        return (int)syscall(SYS_msync, memory, length, flags);
    if (error)
        errno = error;
    return error ? -1 : 0;
}
