/* Calls that make things durable. Logged before they start, so that a write racing with them never counts as synced,
 * and again when they return: only then may anybody rely on them. sync_file_range is not here: it promises nothing. */
#include "shim.h"

#include <time.h>

struct record sync_of(uint64_t ino, uint16_t flags) { return (struct record){.op = OP_SYNC, .ino = ino, .flags = flags}; }

static void wait_us(int64_t microseconds)
{
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (syscall(SYS_nanosleep, &left, &left) && errno == EINTR)
        alive();
}

int sync_begin(const struct record *fields)
{
    alive();
    append(fields, NULL, NULL, NULL, 0);
    if (shared->sync_delay_us > 0)
        wait_us(shared->sync_delay_us);
    if (shared->sync_errno && __atomic_sub_fetch(&shared->sync_error_after, 1, __ATOMIC_SEQ_CST) < 0)
        return (int)shared->sync_errno;
    return 0;
}

void sync_end(const struct record *fields, int error)
{
    struct record end = *fields;
    end.op = OP_SYNC_END;
    end.offset = error;
    append(&end, NULL, NULL, NULL, 0);
}

static int sync_descriptor(long number, int fd, uint16_t flags)
{
    struct file file;
    if (track(fd, &file) == OUTSIDE)
        return (int)syscall(number, fd);
    if (file.kind == REGULAR && !(flags & FLAG_EVERYTHING) && unseen_has(file.ino))
        snapshot(fd, file.ino);
    struct record fields = sync_of(flags & FLAG_EVERYTHING ? 0 : file.ino, flags);
    int error = sync_begin(&fields);
    if (!error && !shared->skip_sync && syscall(number, fd))
        error = errno;
    sync_end(&fields, error);
    if (error)
        errno = error;
    return error ? -1 : 0;
}

EXPORT int fsync(int fd) { return sync_descriptor(SYS_fsync, fd, 0); }
EXPORT int fdatasync(int fd) { return sync_descriptor(SYS_fdatasync, fd, FLAG_DATA_ONLY); }
EXPORT int syncfs(int fd) { return sync_descriptor(SYS_syncfs, fd, FLAG_EVERYTHING); }

EXPORT void sync(void)
{
    struct record fields = sync_of(0, FLAG_EVERYTHING);
    if (shared)
        sync_begin(&fields);
    if (!shared || !shared->skip_sync)
        syscall(SYS_sync);
    if (shared)
        sync_end(&fields, 0);
}
