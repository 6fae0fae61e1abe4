/* Files that change without a call we could wrap: FILE streams write from inside libc, mappings by storing to memory.
 *
 * Their inodes are listed in the log's header, for all processes. Before such a file is synced (and when a stream is
 * flushed or closed) its content is read back and the pages that changed are logged as writes. What such a file holds
 * between two snapshots is unknown, but it was never synced either: the runner takes it from the folder at the end.
 */
#include "shim.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { FREE = 0, REMOVED = 1 };

static uint64_t *slot_of(uint64_t ino)
{
    for (uint64_t i = 0; i < UNSEEN_MAX; i++) {
        uint64_t *slot = &shared->unseen[(ino + i) % UNSEEN_MAX];
        uint64_t value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (value == ino)
            return slot;
        if (value == FREE)
            return NULL;
    }
    return NULL;
}

int unseen_has(uint64_t ino) { return slot_of(ino) != NULL; }

void unseen_add(uint64_t ino)
{
    if (slot_of(ino))
        return;
    for (uint64_t i = 0; i < UNSEEN_MAX; i++) {
        uint64_t expected = FREE, *slot = &shared->unseen[(ino + i) % UNSEEN_MAX];
        if (__atomic_compare_exchange_n(slot, &expected, ino, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || expected == ino)
            return;
    }
}

void unseen_remove(uint64_t ino)
{
    uint64_t *slot = slot_of(ino);
    if (slot)
        __atomic_store_n(slot, REMOVED, __ATOMIC_RELEASE);
}

/* One checksum per page of the files snapshotted lately, so that a second snapshot logs only what changed. Losing an
 * entry costs log space, nothing else; therefore a handful is enough and the table is per process. */
#define KEPT 16
static struct kept {
    uint64_t ino;
    size_t pages;
    uint64_t *sums;
} kept[KEPT];
static unsigned kept_next;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static struct kept *sums_of(uint64_t ino, size_t pages)
{
    struct kept *entry = NULL;
    for (int i = 0; i < KEPT && !entry; i++)
        if (kept[i].ino == ino)
            entry = &kept[i];
    if (entry && entry->pages >= pages)
        return entry;
    if (!entry)
        entry = &kept[kept_next++ % KEPT];
    size_t bytes = (2 * pages + 64) * sizeof(uint64_t);
    uint64_t *grown = (uint64_t *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED)
        return NULL;
    if (entry->sums) {
        if (entry->ino == ino)
            memcpy(grown, entry->sums, entry->pages * sizeof *grown);
        syscall(SYS_munmap, entry->sums, entry->pages * sizeof *grown);
    }
    *entry = (struct kept){.ino = ino, .pages = 2 * pages + 64, .sums = grown};
    return entry;
}

static uint64_t sum_of(const char *bytes, size_t n)
{
    uint64_t sum = 1469598103934665603u ^ n, word;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, bytes + i, 8);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 32;
    }
    for (; i < n; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
    return sum ? sum : 1;
}

static void log_if_changed(struct kept *entry, uint64_t ino, int64_t at, char *bytes, size_t n)
{
    uint64_t sum = sum_of(bytes, n), *known = entry ? &entry->sums[at / PAGE] : NULL;
    if (known && *known == sum)
        return;
    if (known)
        *known = sum;
    struct iovec piece = {bytes, n};
    struct record fields = {.op = OP_WRITE, .flags = FLAG_SNAPSHOT, .ino = ino, .offset = at, .length = n, .data_len = n};
    append(&fields, NULL, NULL, &piece, 1);
}

static void copy_changes(int fd, uint64_t ino, int64_t size)
{
    char bytes[PAGE];
    struct record length = {.op = OP_TRUNCATE, .flags = FLAG_SNAPSHOT, .ino = ino, .length = (uint64_t)size};
    append(&length, NULL, NULL, NULL, 0);
    struct kept *entry = sums_of(ino, (size_t)(size + PAGE - 1) / PAGE);
    int64_t at = 0;
    /* Holes are skipped: a torn index file can claim terabytes and hold kilobytes. */
    while (at < size && (at = syscall(SYS_lseek, fd, at, SEEK_DATA)) >= 0 && at < size) {
        int64_t end = syscall(SYS_lseek, fd, at, SEEK_HOLE);
        for (at -= at % PAGE; at < end && at < size; at += PAGE) {
            ssize_t n = syscall(SYS_pread64, fd, bytes, size - at < PAGE ? size - at : PAGE, at);
            if (n <= 0)
                return;
            log_if_changed(entry, ino, at, bytes, (size_t)n);
        }
    }
}

/* A second descriptor is opened because ours may be write-only and its offset is not ours to move. (Closing it drops
 * the process's fcntl locks on the file; engines do not lock files that they write through streams or mappings of
 * whole data files. SQLite does lock its -shm file, and never syncs it.) */
void snapshot(int fd, uint64_t ino)
{
    struct stat status;
    int saved = errno, reader = reopen(fd);
    if (reader >= 0) {
        pthread_mutex_lock(&kept_lock);
        if (!syscall(SYS_fstat, reader, &status))
            copy_changes(reader, ino, status.st_size);
        pthread_mutex_unlock(&kept_lock);
        syscall(SYS_close, reader);
    }
    errno = saved;
}

/* The same for part of a mapping, whose descriptor may be closed long since. Memory beyond the end of the file cannot
 * be read; process_vm_readv says so, where a plain load would be SIGBUS. */
void snapshot_memory(uint64_t ino, int64_t offset, char *memory, size_t length)
{
    char bytes[PAGE];
    int saved = errno;
    pid_t self = getpid();
    pthread_mutex_lock(&kept_lock);
    struct kept *entry = sums_of(ino, ((size_t)offset + length) / PAGE + 1);
    for (size_t at = 0; at < length; at += PAGE) {
        struct iovec to = {bytes, length - at < PAGE ? length - at : PAGE}, from = {memory + at, to.iov_len};
        ssize_t n = syscall(SYS_process_vm_readv, self, &to, 1, &from, 1, 0);
        if (n <= 0)
            break;
        log_if_changed(entry, ino, offset + (int64_t)at, bytes, (size_t)n);
    }
    pthread_mutex_unlock(&kept_lock);
    errno = saved;
}

/* A file moved into the root from elsewhere: its whole content is news. */
void snapshot_new(int fd, const char *path)
{
    struct stat status;
    if (syscall(SYS_fstat, fd, &status) || !S_ISREG(status.st_mode))
        return;
    struct record created = {.op = OP_CREATE, .ino = status.st_ino, .length = status.st_mode & 07777};
    append(&created, path, NULL, NULL, 0);
    snapshot(fd, status.st_ino);
}

static void lock_kept(void) { pthread_mutex_lock(&kept_lock); }
static void unlock_kept(void) { pthread_mutex_unlock(&kept_lock); }
__attribute__((constructor)) static void prepare_for_fork(void) { pthread_atfork(lock_kept, unlock_kept, unlock_kept); }
